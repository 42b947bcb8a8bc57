// How the warps of all blocks that share a column of columns.cu add up, and wait for each other.

#define WARPS (THREADS / 32)
#define COLUMN_WARPS (CLUSTER * WARPS)  // warps of a column
#define FULL 0xffffffffu

__device__ float sum_of_warp(float x) {
    for (int apart = 16; apart; apart >>= 1) x += __shfl_xor_sync(FULL, x, apart);
    return x;
}

// Of numbers that are not negative: their bits are in the same order.
__device__ float largest_of_warp(float x) {
#if __CUDA_ARCH__ >= 800
    return __int_as_float(__reduce_max_sync(FULL, __float_as_int(x)));
#else
    for (int apart = 16; apart; apart >>= 1) x = fmaxf(x, __shfl_xor_sync(FULL, x, apart));
    return x;
#endif
}

// Where the warps of a column meet, again and again: each lays down its part of a sum in every block. Two partials in turn,
// as a slow warp may still be reading the last one, and two barriers: messages of the next reduction may come before this
// one is over, but not those of the one after, which nobody sends before all have left this one.
struct Reduction {
    float *partials;  // [2, 3, COLUMN_WARPS]
#if CLUSTER > 1
    MBarrier *barriers;  // [2]
#endif
    int turn;

    __device__ float *partial() const { return partials + (turn & 1) * 3 * COLUMN_WARPS; }
    __device__ void publish(float *at, float x) const;
    __device__ void begin();
    __device__ void end(int bytes);
    __device__ void end_of_rows(int share);
};

__device__ void Reduction::publish(float *at, float x) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = block() % CLUSTER;
    at += rank * WARPS + warp;
    if (lane == 0) *at = x;
#if CLUSTER > 1
    const int other = (rank + lane) % CLUSTER;
    if (lane > 0 && lane < CLUSTER) send(at_block(at, other), x, at_block(barriers + (turn & 1), other));
#endif
}

// Ends with all blocks of the cluster running, so that they can be written to.
__device__ void Reduction::begin() {
#if CLUSTER > 1
    if (threadIdx.x < 2) init_barrier(barriers + threadIdx.x, WARPS);
    sync_cluster();  // all blocks run
#else
    __syncthreads();
#endif
}

// All threads of all blocks have come, and what they wrote is seen; this warp is sent so many bytes by each other block.
__device__ void Reduction::end(int bytes) {
#if CLUSTER > 1
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(barriers + (turn & 1), (CLUSTER - 1) * bytes);
    wait(barriers + (turn & 1), turn >> 1 & 1);  // the wait
#else
    __syncthreads();  // the wait
#endif
    ++turn;
}

// The same after each row of this block was put to all Copies.
__device__ void Reduction::end_of_rows(int share) {
    end(4 * 32 * (ROWS - ((ROWS - 1) * THREADS + (int)threadIdx.x >= share)));
}

// Sum of a over the column, in one order: the same bits in every thread of every block and in every run.
__device__ void all_reduce(Reduction &reduction, float &a) {
    const float *partial = reduction.partial();
    reduction.publish(reduction.partial(), sum_of_warp(a));
    reduction.end(4);
    a = 0.0f;
    for (int k = threadIdx.x % 32; k < COLUMN_WARPS; k += 32) a += partial[k];
    a = sum_of_warp(a);
}

// The same, with the largest of b and of c, which are not negative.
__device__ void all_reduce(Reduction &reduction, float &a, float &b, float &c) {
    float *partial = reduction.partial();
    reduction.publish(partial, sum_of_warp(a));
    reduction.publish(partial + COLUMN_WARPS, largest_of_warp(b));
    reduction.publish(partial + 2 * COLUMN_WARPS, largest_of_warp(c));
    reduction.end(3 * 4);
    a = b = c = 0.0f;
    for (int k = threadIdx.x % 32; k < COLUMN_WARPS; k += 32) {
        a += partial[k];
        b = fmaxf(b, partial[COLUMN_WARPS + k]);
        c = fmaxf(c, partial[2 * COLUMN_WARPS + k]);
    }
    a = sum_of_warp(a);
    b = largest_of_warp(b);
    c = largest_of_warp(c);
}

// Where p of this block's rows is written: in every block of the cluster, for the reduction that ends next.
struct Copies {
    float *mine;
    unsigned other[CLUSTER], barrier[CLUSTER];

    __device__ Copies(float *mine, const Reduction &reduction) : mine(mine) {
#if CLUSTER > 1
#pragma unroll
        for (int k = 1; k < CLUSTER; ++k) {
            other[k] = at_block(mine, (block() + k) % CLUSTER);
            barrier[k] = at_block(reduction.barriers + (reduction.turn & 1), (block() + k) % CLUSTER);
        }
#endif
    }
    __device__ void put(int place, float x) const {
        mine[place] = x;
#if CLUSTER > 1
#pragma unroll
        for (int k = 1; k < CLUSTER; ++k) send(other[k] + 4 * place, x, barrier[k]);
#endif
    }
};
