// Conjugate gradients with one cluster of blocks of threads per column, start to verdict: nothing leaves them on the way.
//
// J is scaled to a unit diagonal, which is what Jacobi's preconditioner amounts to: A = S J S with S = diag(J)^-1/2,
// so the iteration solves A y = S h and mu = S y. The direction p of all rows lies in the shared memory of every block,
// where neighbours are looked up; each of the CLUSTER blocks (often one) owns a share of the rows and writes their p to
// the others. A thread owns the rows at places threadIdx.x, threadIdx.x + THREADS, ... of its block's share; their y,
// product and residual stay in its registers. Places number the rows longest first (see row_layout.py). Neighbours
// come in chunks of four: level k holds the k-th chunk of every row that has one, which are the first places, so that
// threads read side by side and share all levels alike; a row's last chunk may be one of two or one. What a row has
// beyond LEVELS chunks, its tail, a warp adds up.
//
// Compiled at run time with these defined: CLUSTER, THREADS, ROWS (a thread's rows, which but for the last all threads
// have), LEVELS, LEAN, 1 where registers do not suffice for the residual, which then lies in shared memory, and KEEP,
// which slots are copied into shared memory (0: none; 1: all but those of the first level; 2: all), and the states of a
// column (states.py); behind columns_cluster.cu, columns_reduce.cu and columns_rows.cu.

#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fc00000)
#if LEAN
#define RESIDUAL r[place]
#else
#define RESIDUAL r[j]
#endif

// |x| with NaN as infinity: a maximum drops NaN, and an error must never vanish that way
__device__ float magnitude(float x) { return x == x ? fabsf(x) : INFINITE; }

// What is read once or twice in a solve: found anew each time, as addresses would take registers all the while.
struct Inputs {
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

// Nobody writes to another block after the last reduction, so a block may leave when it likes.
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
    float *partials = tail + tails;
    Memory &memory = *reinterpret_cast<Memory *>(partials + 2 * 3 * COLUMN_WARPS);
#if CLUSTER > 1
    Reduction reduction = {partials, reinterpret_cast<MBarrier *>(level_table + LEVELS + 1), 0};
#else
    Reduction reduction = {partials, 0};
#endif
    levels += rank * (LEVELS + 2);
    const int4 about = levels[LEVELS + 1];  // of the block's slots: the first; how many are not of level 0, and all
    const Slots slots = {values + head * num_slots + about.x, index + about.x};
#if KEEP
    const int used = reinterpret_cast<float *>(&memory + 1) - p, base = (used + 3) / 4 * 4;
    const int kept = KEEP == 1 ? about.y : about.z;
    const Slots near = {p + base, reinterpret_cast<unsigned short *>(p + base + kept)};
    near.copy(slots, kept);
#else
    const Slots near = slots;
#endif
    const Table A = {KEEP == 2 ? near : slots, near, tail_start + rank * (tails + 1), level_table, share, tails};
    if (threadIdx.x <= LEVELS) level_table[threadIdx.x] = levels[threadIdx.x];
    const Inputs inputs = {root, h, order, num_nodes, places, F};
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
    reduction.begin();
#pragma unroll 1
    for (int place = threadIdx.x; place < share; place += THREADS) {
        const float own = mine[place], others = around_absolute(A, p, place), row = own * (own + others);
        largest = fmaxf(largest, magnitude(inputs.of_h(place)));
        norm = fmaxf(norm, magnitude(row));
        sums = fmaxf(sums, magnitude(1.0f + others / own));  // of a row of |A|, about
        refuted += row != row ? row : inputs.of_root(place) < 0.0f ? 1.0f : 0.0f;  // NaN: J is not finite
    }
    all_reduce(reduction, refuted, largest, norm);
    const bool broken = !(largest < INFINITE) || !(norm < INFINITE);
    int state = ACTIVE;
    if (!(largest < INFINITE) || refuted != refuted) {
        state = NONFINITE;
    } else if (refuted > 0.0f) {
        state = INDEFINITE;
    } else if (broken) {
        state = OVERFLOW;
    }
    // in units of h's size: the squares in dot products of float32 overflow from 1e19 on
    const float scale = largest > 0.0f && !broken ? largest : 1.0f, size_of_h = largest > 0.0f ? 1.0f : 0.0f;
    float rho = 0.0f, size_of_b = 0.0f;
    memory = {scale, norm, size_of_h, size_of_h, size_of_h, aim};  // and no steps
    ONE_BY_ONE {  // y = 0, whose residual needs no product
        const float rest = inputs.of_h(place) / scale / mine[place];
        size_of_b = fmaxf(size_of_b, magnitude(rest));
        rho += rest * rest;
        RESIDUAL = rest;
        y[j] = 0.0f;
    }
    all_reduce(reduction, rho, size_of_b, sums);
    const Copies first(mine, reduction);
    EACH_ROW first.put(place, RESIDUAL);
    reduction.end_of_rows(share);  // p is there for all
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
            all_reduce(reduction, curvature);  // also: the tails are there
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
            all_reduce(reduction, rho_new, r_max, x_max);
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
                const float own = inputs.of_root(place), b = inputs.of_h(place) / memory.scale / own;
                const float rest = b - (q[j] + y[j]);
                RESIDUAL = rest;
                rho_new += rest * rest;
                r_max = fmaxf(r_max, magnitude(rest * own));
                x_max = fmaxf(x_max, magnitude(y[j] / own));
            }
            all_reduce(reduction, rho_new, r_max, x_max);
            const float size = memory.norm * x_max + memory.size_of_h, best = memory.best, aim = memory.aim;
            const float error = r_max == 0.0f ? 0.0f : r_max / (size == 0.0f ? 1.0f : size);
            state = memory.claim == EXHAUSTED ? EXHAUSTED : error > 0.9f * best ? STALLED : ACTIVE;
            if (error <= tol) state = VERIFIED;
            if (state != ACTIVE && !(x_max * memory.scale < INFINITE)) state = OVERFLOW;
            __syncthreads();  // all have read what is written now
            // what looked small in the units of A was not in those of J
            if (state == ACTIVE) memory.aim = aim * fmaxf(0.5f * tol / error, 0.05f);
            memory.best = fminf(best, error);
            memory.error = error;
            if (state != ACTIVE) break;
            looking = false;
        }
        rho = rho_new;
        const Copies next(mine, reduction);
        if (looking) {
            EACH_ROW next.put(place, y[j]);
        } else if (beta != 0.0f) {
            EACH_ROW next.put(place, RESIDUAL + beta * mine[place]);
        } else {
            EACH_ROW next.put(place, RESIDUAL);
        }
        reduction.end_of_rows(share);  // p is there for all
    }

    const bool lost = state == INDEFINITE || state == OVERFLOW || state == NONFINITE;
    ONE_BY_ONE if (inputs.node(place) >= 0)
        out[inputs.entry(place)] = lost ? NOT_A_NUMBER : y[j] / inputs.of_root(place) * memory.scale;
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

// J as solve_columns wants it: root[head, place] of the diagonal, -1 where it is not positive, and values[head, slot] of A;
// NaN for what is not finite in J, so that an infinity is a quotient that left the range of float32.
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
        const float own = e < 0 ? 0.0f : off[head * num_edges + e];
        const float both = e < 0 ? 1.0f : root_of(diag[ends[e]]) * root_of(diag[ends[num_edges + e]]);
        values[head * num_slots + at] = fabsf(own) < INFINITE ? own / both : NOT_A_NUMBER;
    }
    if (at < places) {
        const float own = order[at] >= 0 ? diag[order[at]] : 1.0f;
        root[head * places + at] = own <= 0.0f ? -1.0f : own < INFINITE ? sqrtf(own) : NOT_A_NUMBER;
    }
}
