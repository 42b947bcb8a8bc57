// Conjugate gradients with one cluster of blocks of threads a column, start to verdict: nothing leaves them on the way.
//
// J is scaled to a unit diagonal, which is what Jacobi's preconditioner amounts to: A = S J S with S = diag(J)^-1/2,
// so the iteration solves A y = S h and mu = S y. The direction p of all rows lies in the shared memory of every block,
// where neighbours are looked up; each of the CLUSTER blocks (often one) owns a share of the rows and writes their p to
// the others. A thread owns the rows at places threadIdx.x, threadIdx.x + THREADS, ... of its block's share; their y,
// product and residual stay in its registers. Places number the rows longest first (see column_deal.py). Neighbours
// come in chunks of four: level k holds the k-th chunk of every row that has one, which are the first places, so that
// threads read side by side and share all levels alike; a row's last chunk may be one of two or one. What a row has
// beyond LEVELS chunks, its tail, a warp adds up.
//
// Compiled at run time with these defined: CLUSTER, THREADS, ROWS (a thread's rows, which but for the last all threads
// have), LEVELS, LEAN, 1 where registers do not suffice for the residual, which then lies in shared memory, and BELLS:
// how blocks of a cluster wait for each other. 0: at the cluster's barrier, which also waits for everything else that was
// written, and forgets what was read; 1: for each other's messages; 2: for those in sums, and at the barrier for p.
// KEEP: which slots are copied into shared memory. 0: none; 1: all but those of the first level; 2: all.

#define WARPS (THREADS / 32)
#define CREW (CLUSTER * WARPS)  // warps of a column
#define FULL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fc00000)
#define SPARE (65536 / THREADS - (LEAN ? 2 : 3) * ROWS)  // registers of a thread that its rows do not take
#define GROUP (SPARE >= 64 ? 4 : SPARE >= 40 ? 2 : 1)    // rows whose first chunks it then waits for at once
#define EACH_ROW  /* only the last may be missing */               \
    _Pragma("unroll") for (int j = 0; j < ROWS; ++j)              \
        if (const int place = j * THREADS + threadIdx.x; j < ROWS - 1 || place < share)
#define ONE_BY_ONE  /* with a branch at each, over which nothing is read ahead into registers that are not there */ \
    _Pragma("unroll") for (int j = 0; j < ROWS; ++j)                                                                \
        if (const int place = j * THREADS + threadIdx.x; place < share)
#if LEAN
#define RESIDUAL r[place]
#else
#define RESIDUAL r[j]
#endif
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
// Where the block of that rank in the cluster has what this block has at `mine`.
__device__ unsigned at_block(const void *mine, int rank) {
    unsigned long long here;
    unsigned there;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(here) : "l"(mine));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)here), "r"(rank));
    return there;
}

__device__ void write(unsigned there, float x) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
}

// All threads of all blocks of the cluster are here, and what they wrote is seen.
__device__ void everyone() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif
#if CLUSTER > 1 && BELLS
typedef unsigned long long Bell;  // rings when so many warps of its block have come and all messages they expect are here

__device__ unsigned shared_address(const void *at) {
    unsigned long long here;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(here) : "l"(at));
    return (unsigned)here;
}

__device__ void hang(Bell *bell, int warps) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bell)), "r"(warps) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void send(unsigned there, float x, unsigned bell) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(there), "f"(x),
                 "r"(bell)
                 : "memory");
}

__device__ void arrive(Bell *bell, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bell)), "r"(bytes)
                 : "memory");
}

__device__ void wait(Bell *bell, int parity) {
    int rung;
    do {
        asm volatile("{\n\t.reg .pred rung;\n\tmbarrier.try_wait.parity.shared::cta.b64 rung, [%1], %2;\n\t"
                     "selp.b32 %0, 1, 0, rung;\n\t}"
                     : "=r"(rung)
                     : "r"(shared_address(bell)), "r"(parity)
                     : "memory");
    } while (!rung);
}
#endif
#endif

enum { ACTIVE = 0, CLAIMED = 1, VERIFIED = 2, STALLED = 4, EXHAUSTED = 5, INDEFINITE = 6, NONFINITE = 7 };

// |x| with NaN as infinity: a maximum drops NaN, and an error must never vanish that way
__device__ float magnitude(float x) { return x == x ? fabsf(x) : INFINITE; }

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

// Where the warps of a column meet, again and again: each lays down its part of a sum in every block. Two desks in turn,
// as a slow warp may still be reading the last one, and two bells: messages of the next meeting may come before this
// one is over, but not those of the one after, which nobody sends before all have left this one.
struct Meeting {
    float *desks;  // [2, 3, CREW]
#if CLUSTER > 1 && BELLS
    Bell *bells;  // [2]
#endif
    int turn;

    __device__ float *desk() const { return desks + (turn & 1) * 3 * CREW; }
    __device__ void lay_down(float *at, float x) const;
    __device__ void begin();
    __device__ void end(int bytes);
    __device__ void end_of_rows(int share);
};

__device__ void Meeting::lay_down(float *at, float x) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rank = block() % CLUSTER;
    at += rank * WARPS + warp;
    if (lane == 0) *at = x;
#if CLUSTER > 1
    const int other = (rank + lane) % CLUSTER;
#if BELLS
    if (lane > 0 && lane < CLUSTER) send(at_block(at, other), x, at_block(bells + (turn & 1), other));
#else
    if (lane > 0 && lane < CLUSTER) write(at_block(at, other), x);
#endif
#endif
}

__device__ void everyone_at_once() {
#if CLUSTER > 1
    everyone();
#else
    __syncthreads();
#endif
}

// Ends with all blocks of the cluster running, so that they can be written to.
__device__ void Meeting::begin() {
#if CLUSTER > 1 && BELLS
    if (threadIdx.x < 2) hang(bells + threadIdx.x, WARPS);
#endif
    everyone_at_once();  // all blocks run
}

// All threads of all blocks have come, and what they wrote is seen; this warp is sent so many bytes by each other block.
__device__ void Meeting::end(int bytes) {
#if CLUSTER > 1 && BELLS
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(bells + (turn & 1), (CLUSTER - 1) * bytes);
    wait(bells + (turn & 1), turn >> 1 & 1);
#else
    everyone_at_once();  // who meets
#endif
    ++turn;
}

// The same after each row of this block was put to all Copies.
__device__ void Meeting::end_of_rows(int share) {
#if BELLS == 1
    end(4 * 32 * (ROWS - ((ROWS - 1) * THREADS + (int)threadIdx.x >= share)));
#else
    everyone_at_once();  // all rows are there
#endif
}

// Sum of a over the column, in one order: the same bits in every thread of every block and in every run.
__device__ void together(Meeting &meeting, float &a) {
    const float *desk = meeting.desk();
    meeting.lay_down(meeting.desk(), sum_of_warp(a));
    meeting.end(4);
    a = 0.0f;
    for (int k = threadIdx.x % 32; k < CREW; k += 32) a += desk[k];
    a = sum_of_warp(a);
}

// The same, with the largest of b and of c, which are not negative.
__device__ void together(Meeting &meeting, float &a, float &b, float &c) {
    float *desk = meeting.desk();
    meeting.lay_down(desk, sum_of_warp(a));
    meeting.lay_down(desk + CREW, largest_of_warp(b));
    meeting.lay_down(desk + 2 * CREW, largest_of_warp(c));
    meeting.end(3 * 4);
    a = b = c = 0.0f;
    for (int k = threadIdx.x % 32; k < CREW; k += 32) {
        a += desk[k];
        b = fmaxf(b, desk[CREW + k]);
        c = fmaxf(c, desk[2 * CREW + k]);
    }
    a = sum_of_warp(a);
    b = largest_of_warp(b);
    c = largest_of_warp(c);
}

// Slots of a block: values of A and the places of the neighbours they belong to.
struct Slots {
    const float *values;
    const unsigned short *index;

    // as many as that, whole fours, from elsewhere to here
    __device__ void copy(const Slots &from, int count) const {
        for (int k = threadIdx.x; k < count / 4; k += THREADS) {
            ((float4 *)values)[k] = ((const float4 *)from.values)[k];
            ((ushort4 *)index)[k] = ((const ushort4 *)from.index)[k];
        }
    }
};

struct Table {
    Slots first, rest;      // of level 0, and all others
    const int *tail_start;  // [tails + 1] slots
    const int4 *level;      // [LEVELS + 1] first slot, how many rows have three or four here, two at least, any
    int share, tails;
};

__device__ float dot(const float4 &v, const ushort4 &i, const float *x) {
    return v.x * x[i.x] + v.y * x[i.y] + v.z * x[i.z] + v.w * x[i.w];
}
__device__ float dot(const float2 &v, const ushort2 &i, const float *x) { return v.x * x[i.x] + v.y * x[i.y]; }
__device__ float dot(float v, unsigned short i, const float *x) { return v * x[i]; }

// The slots of a place in a level begin here: those of four come first, then those of two, then those of one.
__device__ int begin(const int4 &level, int place) {
    if (place < level.y) return level.x + 4 * place;
    return level.x + 2 * level.y + (place < level.z ? 2 * place : level.z + place);
}

template <class Values, class Index> __device__ float chunk(const Slots &A, const float *x, int at) {
    return dot(*reinterpret_cast<const Values *>(A.values + at), *reinterpret_cast<const Index *>(A.index + at), x);
}

__device__ float two_or_one(const Slots &A, const float *x, const int4 &level, int place) {
    const int at = begin(level, place);
    if (place < level.z) return chunk<float2, ushort2>(A, x, at);
    return place < level.w ? chunk<float, unsigned short>(A, x, at) : 0.0f;
}

// The first chunks of rows from one place to another, which all are of one length. Everything is read before anything
// is used, and without branches, so that a thread waits for several rows at once: memory is far.
template <int COUNT, class Values, class Index>
__device__ void first_chunks(const Slots &A, const float *x, float *q, int at, int from, int to) {
    const Values *values = reinterpret_cast<const Values *>(A.values + at) - from;
    const Index *index = reinterpret_cast<const Index *>(A.index + at) - from;
#pragma unroll
    for (int some = 0; some < ROWS; some += COUNT) {
        const int lowest = some * THREADS + threadIdx.x;
        if (from < to && lowest < to && lowest + (COUNT - 1) * THREADS >= from) {
            Values v[COUNT];
            Index i[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT && some + k < ROWS; ++k) {
                const int place = min(max(lowest + k * THREADS, from), to - 1);
                v[k] = values[place];
                i[k] = index[place];
            }
#pragma unroll
            for (int k = 0; k < COUNT && some + k < ROWS; ++k) {
                const int place = lowest + k * THREADS;
                const float sum = dot(v[k], i[k], x);
                q[some + k] = place >= from && place < to ? sum : q[some + k];
            }
        }
    }
}

// What a row has beyond its first chunk, but for its tail.
__device__ float beyond(const Table &A, const float *x, int place) {
    float sum = 0.0f;
    int level = 1;
#pragma unroll 2
    for (; place < A.level[level].y; ++level) sum += chunk<float4, ushort4>(A.rest, x, A.level[level].x + 4 * place);
    return sum + two_or_one(A.rest, x, A.level[level], place);
}

// What neighbours add to (A x) of a thread's rows, but for the tails, which are there for all after the next barrier.
// Returns what this thread knows of tails times their rows' own x.
__device__ float around(const Table &A, const float *x, const float *mine, float *q, float *tail) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, share = A.share;
    const int4 first = A.level[0];
    const int several = A.level[1].w;
    float product = 0.0f;
    for (int row = WARPS - 1 - warp; row < A.tails; row += WARPS) {  // the last warps have the shorter rows
        const int end = A.tail_start[row + 1];
        float sum = 0.0f;
#pragma unroll 2
        for (int k = A.tail_start[row] + lane; k < end; k += 32) sum += A.rest.values[k] * x[A.rest.index[k]];
        sum = sum_of_warp(sum);
        if (lane == 0) {
            tail[row] = sum;
            product += mine[row] * sum;
        }
    }
#if KEEP == 2  // close by: nothing to be gained by reading ahead
    ONE_BY_ONE q[j] = place < first.y ? chunk<float4, ushort4>(A.first, x, first.x + 4 * place)
                                      : two_or_one(A.first, x, first, place);
#else
#pragma unroll
    for (int j = 0; j < ROWS; ++j) q[j] = 0.0f;
    first_chunks<GROUP, float4, ushort4>(A.first, x, q, first.x, 0, first.y);
    first_chunks<2 * GROUP, float2, ushort2>(A.first, x, q, first.x + 4 * first.y, first.y, first.z);
    first_chunks<2 * GROUP, float, unsigned short>(A.first, x, q, first.x + 2 * (first.y + first.z), first.z, first.w);
#endif
    ONE_BY_ONE if (place < several) q[j] += beyond(A, x, place);
    return product;
}

__device__ void add_tails(float *q, const float *tail, int tails) {
#pragma unroll
    for (int j = 0; j < ROWS && j * THREADS < tails; ++j)
        if (const int place = j * THREADS + threadIdx.x; place < tails) q[j] += tail[place];
}

// The same with |A| for one row, tail and all, which is asked for once.
__device__ float around_absolute(const Table &A, const float *x, int place) {
    float sum = 0.0f;
#pragma unroll 1
    for (int level = 0; place < A.level[level].w; ++level) {
        const int4 about = A.level[level];
        const int count = place < about.y ? 4 : place < about.z ? 2 : 1;
        const Slots slots = {level ? A.rest.values : A.first.values, level ? A.rest.index : A.first.index};
#pragma unroll 1
        for (int k = begin(about, place), end = k + count; k < end; ++k)
            sum += fabsf(slots.values[k]) * x[slots.index[k]];
    }
    if (place < A.tails)
#pragma unroll 1
        for (int k = A.tail_start[place]; k < A.tail_start[place + 1]; ++k)
            sum += fabsf(A.rest.values[k]) * x[A.rest.index[k]];
    return sum;
}

// Where p of this block's rows is written: in every block of the cluster, for the meeting that ends next.
struct Copies {
    float *mine;
    unsigned other[CLUSTER], bell[CLUSTER];

    __device__ Copies(float *mine, const Meeting &meeting) : mine(mine) {
#if CLUSTER > 1
#pragma unroll
        for (int k = 1; k < CLUSTER; ++k) {
            other[k] = at_block(mine, (block() + k) % CLUSTER);
#if BELLS == 1
            bell[k] = at_block(meeting.bells + (meeting.turn & 1), (block() + k) % CLUSTER);
#endif
        }
#endif
    }
    __device__ void put(int place, float x) const {
        mine[place] = x;
#pragma unroll
        for (int k = 1; k < CLUSTER; ++k) {
#if CLUSTER > 1 && BELLS == 1
            send(other[k] + 4 * place, x, bell[k]);
#elif CLUSTER > 1
            write(other[k] + 4 * place, x);
#endif
        }
    }
};

// What is read once or twice in a solve: found anew each time, as addresses would take registers all the while.
struct Given {
    const float *root, *h;
    const int *order;
    int num_nodes, places, F;

    __device__ int at(int place) const { return block() % CLUSTER * (places / CLUSTER) + place; }
    __device__ int node(int place) const { return order[at(place)]; }
    __device__ float of_root(int place) const { return root[(long long)blockIdx.y * places + at(place)]; }
    __device__ long long entry(int place) const {
        return ((long long)blockIdx.y * num_nodes + node(place)) * F + block() / CLUSTER;
    }
    __device__ float of_h(int place) const { return node(place) >= 0 ? h[entry(place)] : 0.0f; }
};

// Numbers that are seldom needed, the same for all threads: kept out of their registers.
struct Memory {
    float scale, norm, size_of_h, error, best, aim, sums, size_of_b, steps;
    int claim;
};

// Nobody writes to another block after the last meeting, so a block may leave when it likes.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
solve_columns(const float *__restrict__ values, const float *__restrict__ root, const float *__restrict__ h,
              float *__restrict__ out, float *__restrict__ report, const int *__restrict__ order,
              const unsigned short *__restrict__ index, const int *__restrict__ tail_start,
              const int4 *__restrict__ levels, int num_nodes, int places, int F, int tails, int num_slots,
              int max_steps, float tol, float aim) {
    SHARED_MEMORY(shared);
    const int share = places / CLUSTER, rank = blockIdx.x % CLUSTER;
    const long long head = blockIdx.y;
    int4 *level_table = reinterpret_cast<int4 *>(shared);
    float *p = reinterpret_cast<float *>(level_table + LEVELS + 2), *mine = p + rank * share;
    float *r_room = p + places, *tail = r_room + (LEAN ? share : 0);
    float *desks = tail + tails;
    Memory &memory = *reinterpret_cast<Memory *>(desks + 2 * 3 * CREW);
#if CLUSTER > 1 && BELLS
    Meeting meeting = {desks, reinterpret_cast<Bell *>(level_table + LEVELS + 1), 0};
#else
    Meeting meeting = {desks, 0};
#endif
    levels += rank * (LEVELS + 2);
    const int4 about = levels[LEVELS + 1];  // where the block's slots begin, how many are not of level 0, how many there are
    const Slots slots = {values + head * num_slots + about.x, index + about.x};
#if KEEP
    const int base = ((int)(reinterpret_cast<float *>(&memory + 1) - p) + 3) / 4 * 4, kept = KEEP == 1 ? about.y : about.z;
    const Slots near = {p + base, reinterpret_cast<unsigned short *>(p + base + kept)};
    near.copy(slots, kept);
#else
    const Slots near = slots;
#endif
    const Table A = {KEEP == 2 ? near : slots, near, tail_start + rank * (tails + 1), level_table, share, tails};
    if (threadIdx.x <= LEVELS) level_table[threadIdx.x] = levels[threadIdx.x];
    const Given given = {root, h, order, num_nodes, places, F};
    float y[ROWS], q[ROWS];
#if LEAN
    float *r = r_room;
#else
    float r[ROWS];
#endif

    // the size of h, the norm of J, and whether its diagonal is positive; root is that of the diagonal, -1 where it is not
    float refuted = 0.0f, largest = 0.0f, norm = 0.0f, sums = 0.0f;
#pragma unroll 1
    for (int place = threadIdx.x; place < places; place += THREADS) {
        const float own = root[head * places + place];
        p[place] = own < 0.0f ? 1.0f : own;
    }
    meeting.begin();
#pragma unroll 1
    for (int place = threadIdx.x; place < share; place += THREADS) {
        const float own = mine[place], others = around_absolute(A, p, place);
        largest = fmaxf(largest, magnitude(given.of_h(place)));
        norm = fmaxf(norm, magnitude(own * (own + others)));
        sums = fmaxf(sums, magnitude(1.0f + others / own));  // of a row of |A|, about
        refuted += given.of_root(place) < 0.0f ? 1.0f : 0.0f;
    }
    together(meeting, refuted, largest, norm);
    const bool broken = !(largest < INFINITE) || !(norm < INFINITE);
    int state = broken ? NONFINITE : refuted > 0.0f ? INDEFINITE : ACTIVE;
    // in units of h's size: the squares in dot products of float32 overflow from 1e19 on
    const float scale = largest > 0.0f && !broken ? largest : 1.0f, size_of_h = largest > 0.0f ? 1.0f : 0.0f;
    float rho = 0.0f, size_of_b = 0.0f;
    memory = {scale, norm, size_of_h, size_of_h, size_of_h, aim};  // and no steps
    ONE_BY_ONE {  // y = 0, whose residual needs no product
        const float rest = given.of_h(place) / scale / mine[place];
        size_of_b = fmaxf(size_of_b, magnitude(rest));
        rho += rest * rest;
        RESIDUAL = rest;
        y[j] = 0.0f;
    }
    together(meeting, rho, size_of_b, sums);
    const Copies first(mine, meeting);
    EACH_ROW first.put(place, RESIDUAL);
    meeting.end_of_rows(share);  // p is there for all
    memory.sums = sums;
    memory.size_of_b = size_of_b;
    if (state == ACTIVE && size_of_h <= tol) state = VERIFIED;
    bool looking = false;
    while (state == ACTIVE) {
        float beta = 0.0f, r_max = 0.0f, x_max = 0.0f, rho_new = 0.0f;
        float curvature = around(A, p, mine, q, tail);
        if (!looking) {
            EACH_ROW {
                q[j] += mine[place];
                curvature += mine[place] * q[j];
            }
            together(meeting, curvature);  // also: the tails are there
            if (!(curvature > 0.0f) && rho != 0.0f) {  // also NaN
                state = INDEFINITE;
                break;
            }
            const float alpha = curvature > 0.0f ? rho / curvature : 0.0f;
            add_tails(q, tail, tails);
            EACH_ROW {
                y[j] += alpha * mine[place];
                const float rest = RESIDUAL - alpha * q[j];
                RESIDUAL = rest;
                rho_new += rest * rest;
                r_max = fmaxf(r_max, fabsf(rest));
                x_max = fmaxf(x_max, fabsf(y[j]));
            }
            if (threadIdx.x == 0) memory.steps += 1.0f;
            together(meeting, rho_new, r_max, x_max);
            if (!(rho_new < INFINITE)) r_max = INFINITE;  // a maximum drops NaN, a sum does not
            beta = rho > 0.0f ? rho_new / rho : 0.0f;
            // a little below aim: the recursion is a shade too optimistic, and a refused claim costs a product
            const bool claimed = r_max <= 0.8f * memory.aim * (memory.sums * x_max + memory.size_of_b) || r_max == 0.0f;
            looking = claimed || memory.steps >= (float)max_steps;
            if (looking) memory.claim = claimed ? CLAIMED : EXHAUSTED;
        } else {  // the true residual decides, in the units of J; where it refutes, CG begins anew from it
            __syncthreads();  // the tails are there
            add_tails(q, tail, tails);
            ONE_BY_ONE {
                const float own = given.of_root(place), b = given.of_h(place) / memory.scale / own;
                const float rest = b - (q[j] + y[j]);
                RESIDUAL = rest;
                rho_new += rest * rest;
                r_max = fmaxf(r_max, magnitude(rest * own));
                x_max = fmaxf(x_max, magnitude(y[j] / own));
            }
            together(meeting, rho_new, r_max, x_max);
            const float size = memory.norm * x_max + memory.size_of_h, best = memory.best, aim = memory.aim;
            const float error = r_max == 0.0f ? 0.0f : r_max / (size == 0.0f ? 1.0f : size);
            state = memory.claim == EXHAUSTED ? EXHAUSTED : error > 0.9f * best ? STALLED : ACTIVE;
            if (error <= tol) state = VERIFIED;
            __syncthreads();  // all have read what is written now
            // what looked small in the units of A was not in those of J
            if (state != VERIFIED) memory.aim = aim * fmaxf(0.5f * tol / error, 0.05f);
            memory.best = fminf(best, error);
            memory.error = error;
            if (state != ACTIVE) break;
            looking = false;
        }
        rho = rho_new;
        const Copies next(mine, meeting);
        if (looking) {
            EACH_ROW next.put(place, y[j]);
        } else if (beta != 0.0f) {
            EACH_ROW next.put(place, RESIDUAL + beta * mine[place]);
        } else {
            EACH_ROW next.put(place, RESIDUAL);
        }
        meeting.end_of_rows(share);  // p is there for all
    }

    const bool lost = state == INDEFINITE || state == NONFINITE;
    ONE_BY_ONE if (given.node(place) >= 0)
        out[given.entry(place)] = lost ? NOT_A_NUMBER : y[j] / given.of_root(place) * memory.scale;
    if (rank == 0 && threadIdx.x == 0) {
        const long long row = (long long)gridDim.y * F;
        report += head * F + block() / CLUSTER;
        report[0] = (float)state;
        report[row] = memory.steps;
        report[2 * row] = lost ? NOT_A_NUMBER : memory.error;
    }
}

// By what a row is scaled; 1 for a diagonal that is refuted anyway.
__device__ float root_of(float diagonal) { return diagonal <= 0.0f ? 1.0f : sqrtf(diagonal); }

// J as solve_columns wants it: root[head, place] of the diagonal, -1 where it is not positive, and values[head, slot] of A.
extern "C" __global__ void lay_out(const float *__restrict__ diag, const float *__restrict__ off,
                                   float *__restrict__ values, float *__restrict__ root,
                                   const int *__restrict__ order, const int *__restrict__ edge,
                                   const int *__restrict__ ends, int num_nodes, int num_edges, int places,
                                   int num_slots) {
    const long long head = blockIdx.y;
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    diag += head * num_nodes;
    if (at < num_slots) {
        const int e = edge[at];  // scaled by its ends in one order, so that A is as symmetric as J
        values[head * num_slots + at] =
            e < 0 ? 0.0f : off[head * num_edges + e] / (root_of(diag[ends[e]]) * root_of(diag[ends[num_edges + e]]));
    }
    if (at < places) {
        const float own = order[at] >= 0 ? diag[order[at]] : 1.0f;
        root[head * places + at] = own <= 0.0f ? -1.0f : sqrtf(own);  // NaN stays NaN
    }
}
