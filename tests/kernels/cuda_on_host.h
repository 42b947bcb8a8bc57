// Enough of CUDA to run one block of threads after another on the host: for tests without a GPU. A thread is a fiber
// that runs until it must wait for others.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

struct float4 { float x, y, z, w; };
struct ushort4 { unsigned short x, y, z, w; };
struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, blockDim, gridDim;
static float exchange[1024];
float shared_room[1 << 16];

#define __global__
#define __device__ static
#define __shared__
#define __launch_bounds__(...)
#define __restrict__
#define shared shared_room

struct Barrier {
    unsigned size, arrived = 0, round = 0;
};
static std::vector<ucontext_t> fibers;
static std::vector<Barrier> barriers;  // of each warp, then of the block
static ucontext_t crew;

static void wait_at(Barrier &barrier) {
    const unsigned me = threadIdx.x, round = barrier.round;
    if (++barrier.arrived == barrier.size) {
        barrier.arrived = 0;
        ++barrier.round;
    }
    while (barrier.round == round) {
        swapcontext(&fibers[me], &crew);
        threadIdx.x = me;
    }
}
static void __syncthreads() { wait_at(barriers.back()); }
static float __int_as_float(int bits) {
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
static float __shfl_xor_sync(unsigned, float value, int apart) {
    const unsigned me = threadIdx.x;
    exchange[me] = value;
    wait_at(barriers[me / 32]);
    const float other = exchange[me ^ apart];
    wait_at(barriers[me / 32]);
    return other;
}

static void (*body)(void *);
static void *about;
static unsigned finished;
static void fiber() {
    body(about);
    ++finished;
}

template <class Body> static void run_blocks(unsigned columns, unsigned heads, unsigned threads, Body what) {
    static std::vector<std::vector<char>> stacks;
    stacks.assign(threads, std::vector<char>(1 << 16));
    body = [](void *given) { (*static_cast<Body *>(given))(); };
    about = &what;
    blockDim = {threads, 1, 1}, gridDim = {columns, heads, 1};
    for (unsigned block = 0; block < columns * heads; ++block) {
        blockIdx = {block % columns, block / columns, 0};
        barriers.assign(threads / 32, Barrier{32});
        barriers.push_back(Barrier{threads});
        fibers.assign(threads, ucontext_t());
        std::vector<bool> done(threads, false);
        for (unsigned t = 0; t < threads; ++t) {
            getcontext(&fibers[t]);
            fibers[t].uc_stack.ss_sp = stacks[t].data();
            fibers[t].uc_stack.ss_size = stacks[t].size();
            fibers[t].uc_link = &crew;
            makecontext(&fibers[t], fiber, 0);
        }
        for (finished = 0; finished < threads;)
            for (unsigned t = 0; t < threads; ++t)
                if (!done[t]) {
                    const unsigned before = finished;
                    threadIdx = {t, 0, 0};
                    swapcontext(&crew, &fibers[t]);
                    done[t] = finished != before;
                }
    }
}
