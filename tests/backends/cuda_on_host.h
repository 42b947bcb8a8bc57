// Enough of CUDA to run one cluster of blocks of threads after another on the host: for tests without a GPU. A thread is
// a fiber that runs until it must wait for others. In which order the fibers take their turns is up to `turns`: what
// depends on it lacks a barrier.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct int4 { int x, y, z, w; };
struct ushort2 { unsigned short x, y; };
struct ushort4 { unsigned short x, y, z, w; };
struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;

#define ON_HOST
#define __global__
#define __device__ inline
#define __launch_bounds__(...)
#define __restrict__
#define IN_CLUSTERS
#define SHARED_MEMORY(name) float4 *name = rooms[blockIdx.x % CLUSTER]
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif

enum { FORWARD, BACKWARD, SHUFFLED };
static int turns = FORWARD;
static const unsigned ROOM = 1 << 14;
static float4 rooms[CLUSTER][ROOM];
static float exchange[CLUSTER * 1024];

struct Barrier {
    unsigned size, arrived = 0, round = 0;
};
// Rings when all warps have come and all bytes that they expect are there.
struct MBarrier {
    short missing, size;
    int bytes : 31;
    unsigned parity : 1;
};
struct Fiber {
    ucontext_t start;
    jmp_buf here;  // swapcontext would ask the kernel about signals every time
    bool began = false;
    const Barrier *barrier = nullptr;  // what it waits for, if anything
    const MBarrier *mbarrier = nullptr;
    unsigned seen;  // its round or parity
    bool waits() const { return barrier ? barrier->round == seen : mbarrier && mbarrier->parity == seen; }
};
static std::vector<Fiber> fibers;
static std::vector<Barrier> warps, blocks;  // those of a cluster
static Barrier cluster;
static jmp_buf scheduler;
static unsigned running;  // which fiber
static unsigned long moves;

static void pause(const Barrier *barrier, const MBarrier *mbarrier, unsigned seen) {
    Fiber &me = fibers[running];
    me.barrier = barrier, me.mbarrier = mbarrier, me.seen = seen;
    if (me.waits() && !_setjmp(me.here)) _longjmp(scheduler, 1);
    me.barrier = nullptr, me.mbarrier = nullptr;
}
static void __attribute__((noinline)) resume(Fiber &fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.began) _longjmp(fiber.here, 1);
    fiber.began = true;
    setcontext(&fiber.start);
}

static void wait_at(Barrier &barrier) {
    const unsigned round = barrier.round;
    ++moves;
    if (++barrier.arrived == barrier.size) {
        barrier.arrived = 0;
        ++barrier.round;
    }
    pause(&barrier, nullptr, round);
}
static void __syncthreads() { wait_at(blocks[running / blockDim.x]); }
static void sync_cluster() { wait_at(cluster); }
static int block() { return blockIdx.x; }
static void __syncwarp() { wait_at(warps[running / 32]); }

// An address in the shared memory of a cluster: the block's rank, and where in its memory.
static unsigned at_block(const void *mine, int rank) {
    return rank << 24 | (unsigned)((const char *)mine - (const char *)rooms[blockIdx.x % CLUSTER]);
}
static void *at_address(unsigned there) { return (char *)rooms[there >> 24] + (there & 0xffffff); }

static void complete(MBarrier *barrier) {
    ++moves;
    if (barrier->missing || barrier->bytes) return;
    barrier->missing = barrier->size;
    barrier->parity ^= 1;
}
static void init_barrier(MBarrier *barrier, int warps) { *barrier = {(short)warps, (short)warps, 0, 0}; }
static void arrive(MBarrier *barrier, int bytes) {
    barrier->bytes += bytes;
    --barrier->missing;
    complete(barrier);
}
static void wait(MBarrier *barrier, unsigned parity) { pause(nullptr, barrier, parity); }

// Messages are under way for a while: not at all, as long as may be, or by chance.
struct Message {
    unsigned there;
    float x;
    unsigned barrier;
};
static std::vector<Message> post;
static void deliver(size_t which) {
    const Message message = post[which];
    post.erase(post.begin() + which);
    *(float *)at_address(message.there) = message.x;
    MBarrier *barrier = (MBarrier *)at_address(message.barrier);
    barrier->bytes -= 4;
    complete(barrier);
}
static void send(unsigned there, float x, unsigned barrier) {
    post.push_back({there, x, barrier});
    if (turns == FORWARD) deliver(post.size() - 1);
}
static float __int_as_float(int bits) {
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
static int __float_as_int(float number) {
    int out;
    std::memcpy(&out, &number, 4);
    return out;
}
static float __shfl_xor_sync(unsigned, float value, int apart) {
    const unsigned me = running;
    exchange[me] = value;
    wait_at(warps[me / 32]);
    const float other = exchange[me ^ apart];
    wait_at(warps[me / 32]);
    return other;
}
static int __reduce_max_sync(unsigned, int value) {
    for (int apart = 16; apart; apart >>= 1)
        value = max(value, __float_as_int(__shfl_xor_sync(0, __int_as_float(value), apart)));
    return value;
}

static void (*body)(void *);
static void *about;
static unsigned finished;
static void fiber() {
    body(about);
    ++finished;
    ++moves;
    _longjmp(scheduler, 1);
}

// Columns of CLUSTER blocks each, which run at once; of one block each where `together` is not. False where all threads
// wait, for each other and in vain.
template <class Body> static bool run_blocks(unsigned columns, unsigned heads, unsigned threads, bool together, Body what) {
    static std::vector<std::vector<char>> stacks;
    const unsigned size = together ? CLUSTER : 1, all = size * threads;
    stacks.resize(std::max<size_t>(stacks.size(), all), std::vector<char>(1 << 16));
    body = [](void *inputs) { (*static_cast<Body *>(inputs))(); };
    about = &what;
    blockDim = {threads, 1, 1}, gridDim = {columns * size, heads, 1};
    std::mt19937 random(7);
    for (unsigned column = 0; column < columns * heads; ++column) {
        const Three first = {column % columns * size, column / columns, 0};
        std::memset(rooms, 0xff, sizeof(rooms));  // NaN
        warps.assign(all / 32, Barrier{32});
        blocks.assign(size, Barrier{threads});
        cluster = Barrier{all};
        post.clear();
        fibers.assign(all, Fiber());
        std::vector<bool> done(all, false);
        std::vector<unsigned> queue(all);
        for (unsigned t = 0; t < all; ++t) {
            queue[t] = turns == BACKWARD ? all - 1 - t : t;
            ucontext_t &start = fibers[t].start;
            getcontext(&start);
            start.uc_stack.ss_sp = stacks[t].data();
            start.uc_stack.ss_size = stacks[t].size();
            makecontext(&start, fiber, 0);
        }
        for (finished = 0; finished < all;) {
            const unsigned long so_far = moves;
            if (turns == SHUFFLED) std::shuffle(queue.begin(), queue.end(), random);
            for (unsigned t : queue)
                if (!done[t]) {
                    if (turns == SHUFFLED && !post.empty() && random() % 2) deliver(random() % post.size());
                    if (fibers[t].waits()) continue;
                    const unsigned before = finished;
                    running = t;
                    threadIdx = {t % threads, 0, 0};
                    blockIdx = {first.x + t / threads, first.y, 0};
                    resume(fibers[t]);
                    done[t] = finished != before;
                }
            if (moves == so_far && post.empty()) return false;
            if (moves == so_far) deliver(random() % post.size());
        }
    }
    return true;
}
