// What the blocks of threads that share a column of columns.cu tell each other by: instructions, and nothing else. Tests
// without a GPU have their own.
//
// Once all run, blocks wait for each other's messages: the cluster's barrier would also wait for everything else that
// was written, and forget what was read.

#ifndef ON_HOST
#define SHARED_MEMORY(name) extern __shared__ float4 name[]
#if CLUSTER > 1
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

// blockIdx.x, which the compiler does not know to be the same each time.
__device__ int block() {
    int x;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
    return x;
}

#if CLUSTER > 1
__device__ unsigned shared_address(const void *at) {
    unsigned long long here;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(here) : "l"(at));
    return (unsigned)here;
}

// Where the block of that rank in the cluster has what this block has at `mine`.
__device__ unsigned at_block(const void *mine, int rank) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(mine)), "r"(rank));
    return there;
}

// All threads of all blocks of the cluster are here, and what they wrote is seen.
__device__ void sync_cluster() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Rings when all warps of its block have come, and all messages that they expect.
typedef unsigned long long MBarrier;

__device__ void init_barrier(MBarrier *barrier, int warps) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(warps) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void send(unsigned there, float x, unsigned barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(there), "f"(x),
                 "r"(barrier)
                 : "memory");
}

__device__ void arrive(MBarrier *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ void wait(MBarrier *barrier, int parity) {
    int rung;
    do {
        asm volatile("{\n\t.reg .pred rung;\n\tmbarrier.try_wait.parity.shared::cta.b64 rung, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, rung;\n\t}"
                     : "=r"(rung)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
    } while (!rung);
}
#endif
#endif

