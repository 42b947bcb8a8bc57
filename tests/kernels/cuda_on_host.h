// Enough of CUDA to run one block of threads after another with the host's own: for tests without a GPU.
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

struct Three { unsigned x, y, z; };
static thread_local Three threadIdx, blockIdx, blockDim, gridDim;
static std::barrier<> *block_barrier, *warp_barrier[32];
static float exchange[1024];
float shared_room[1 << 16];

#define __global__
#define __device__ static
#define __shared__
#define __launch_bounds__(...)
#define __restrict__
#define shared shared_room
static void __syncthreads() { block_barrier->arrive_and_wait(); }
static float __int_as_float(int bits) { float out; std::memcpy(&out, &bits, 4); return out; }
static float __shfl_xor_sync(unsigned, float value, int apart) {
    const int me = threadIdx.x;
    exchange[me] = value;
    warp_barrier[me / 32]->arrive_and_wait();
    const float other = exchange[me ^ apart];
    warp_barrier[me / 32]->arrive_and_wait();
    return other;
}

template <class Body> static void run_blocks(unsigned columns, unsigned heads, unsigned threads, Body body) {
    std::barrier<> all(threads);
    std::vector<std::barrier<> *> warps;
    for (unsigned w = 0; w < threads / 32; ++w) warps.push_back(warp_barrier[w] = new std::barrier<>(32));
    block_barrier = &all;
    std::vector<std::thread> crew;
    for (unsigned t = 0; t < threads; ++t)
        crew.emplace_back([=, &body, &all] {
            threadIdx = {t, 0, 0}, blockDim = {threads, 1, 1}, gridDim = {columns, heads, 1};
            for (unsigned head = 0; head < heads; ++head)
                for (unsigned column = 0; column < columns; ++column) {
                    blockIdx = {column, head, 0};
                    body();
                    all.arrive_and_wait();
                }
        });
    for (auto &thread : crew) thread.join();
    for (auto *warp : warps) delete warp;
}
