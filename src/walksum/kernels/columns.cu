// Conjugate gradients with one block of threads a column, start to verdict: nothing leaves the processor on the way.
//
// J is scaled to a unit diagonal, which is what Jacobi's preconditioner amounts to: A = S J S with S = diag(J)^-1/2,
// so the iteration solves A y = S h and mu = S y. A thread owns the rows at places threadIdx.x, threadIdx.x + THREADS,
// ...; their y and product stay in its registers, the direction p and the residual r of all rows in shared memory,
// where neighbours are looked up. Places number the rows longest first (see column_deal.py). Neighbours come in chunks
// of four: level k holds the k-th chunk of every row that has one, which are the first places, so that threads read
// side by side and share all levels alike. What a row has beyond LEVELS chunks, its tail, a warp adds up.
//
// Compiled at run time with THREADS and ROWS (a thread's rows, at most) defined.

#define WARPS (THREADS / 32)
#define LEVELS 16
#define FULL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fc00000)
#define EACH_ROW                                                  \
    _Pragma("unroll") for (int j = 0; j < ROWS; ++j)              \
        if (const int place = j * THREADS + threadIdx.x; place < places)

enum { ACTIVE = 0, CLAIMED = 1, VERIFIED = 2, STALLED = 4, EXHAUSTED = 5, INDEFINITE = 6, NONFINITE = 7 };

// |x| with NaN as infinity: a maximum drops NaN, and an error must never vanish that way
__device__ float magnitude(float x) { return x == x ? fabsf(x) : INFINITE; }

__device__ void over_warp(float &a, float &b, float &c) {
    for (int apart = 16; apart; apart >>= 1) {
        a += __shfl_xor_sync(FULL, a, apart);
        b = fmaxf(b, __shfl_xor_sync(FULL, b, apart));
        c = fmaxf(c, __shfl_xor_sync(FULL, c, apart));
    }
}

// Sum of a and largest of b and c over the block, in one order: the same bits in every thread and every run.
__device__ void together(float *desk, int turn, float &a, float &b, float &c) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    over_warp(a, b, c);
    desk += (turn & 1) * 3 * 32;  // two desks in turn: a slow warp may still be reading the last one
    if (lane == 0) {
        desk[warp] = a;
        desk[32 + warp] = b;
        desk[64 + warp] = c;
    }
    __syncthreads();
    a = lane < WARPS ? desk[lane] : 0.0f;
    b = lane < WARPS ? desk[32 + lane] : 0.0f;
    c = lane < WARPS ? desk[64 + lane] : 0.0f;
    over_warp(a, b, c);
}

// The values of A and the places of the neighbours they belong to.
struct Table {
    const float *__restrict__ values;
    const unsigned short *__restrict__ index;
    const int *__restrict__ tail_start;  // [tails + 1] slots
    const int *first, *rows;             // of each level: its first chunk, and how many rows have one
    int places, tails;
};

__device__ float chunk(const Table &A, const float *x, int at) {
    const float4 v = reinterpret_cast<const float4 *>(A.values)[at];
    const ushort4 i = reinterpret_cast<const ushort4 *>(A.index)[at];
    return v.x * x[i.x] + v.y * x[i.y] + v.z * x[i.z] + v.w * x[i.w];
}

// What neighbours add to (A x) of a thread's rows. Ends with all threads here.
__device__ void around(const Table &A, const float *x, float *q, float *tail) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, places = A.places, several = A.rows[1];
    for (int row = WARPS - 1 - warp; row < A.tails; row += WARPS) {  // the last warps have the shorter rows
        const int end = A.tail_start[row + 1];
        float sum = 0.0f;
        for (int k = A.tail_start[row] + lane; k < end; k += 32) sum += A.values[k] * x[A.index[k]];
        for (int apart = 16; apart; apart >>= 1) sum += __shfl_xor_sync(FULL, sum, apart);
        if (lane == 0) tail[row] = sum;
    }
    EACH_ROW q[j] = chunk(A, x, place);
    EACH_ROW {
        if (place < several) {
            float sum = 0.0f;
#pragma unroll 2
            for (int level = 1; level < LEVELS; ++level) {
                if (place >= A.rows[level]) break;
                sum += chunk(A, x, A.first[level] + place);
            }
            q[j] += sum;
        }
    }
    __syncthreads();
    EACH_ROW if (place < A.tails) q[j] += tail[place];
}

// The same with |A| for one row, which is asked for once.
__device__ float around_absolute(const Table &A, const float *x, int place) {
    float sum = 0.0f;
#pragma unroll 1
    for (int level = 0; level < LEVELS && place < A.rows[level]; ++level)
#pragma unroll 1
        for (int k = 4 * (A.first[level] + place), end = k + 4; k < end; ++k) sum += fabsf(A.values[k]) * x[A.index[k]];
    if (place < A.tails)
#pragma unroll 1
        for (int k = A.tail_start[place]; k < A.tail_start[place + 1]; ++k) sum += fabsf(A.values[k]) * x[A.index[k]];
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
solve_columns(const float *__restrict__ values, const float *__restrict__ root, const float *__restrict__ h,
              float *__restrict__ out, float *__restrict__ report, const int *__restrict__ order,
              const unsigned short *__restrict__ index, const int *__restrict__ tail_start,
              const int *__restrict__ levels, int num_nodes, int places, int F, int tails, int num_slots,
              int max_steps, float tol, float aim) {
    extern __shared__ float shared[];
    float *p = shared, *r = p + places, *tail = r + places, *desk = tail + tails;
    int *level_table = reinterpret_cast<int *>(desk + 2 * 3 * 32);
    const long long head = blockIdx.y;
    root += head * places;
    h += head * num_nodes * F + blockIdx.x;
    out += head * num_nodes * F + blockIdx.x;
    report += head * F + blockIdx.x;
    const Table A = {values + head * num_slots, index, tail_start, level_table, level_table + LEVELS, places, tails};
    if (threadIdx.x < 2 * LEVELS) level_table[threadIdx.x] = levels[threadIdx.x];
    float y[ROWS], q[ROWS], unused = 0.0f, nothing = 0.0f;
    int turn = 0;

    // the size of h, the norm of J, and whether its diagonal is positive; root is that of the diagonal, -1 where it is not
    float refuted = 0.0f, largest = 0.0f, norm = 0.0f, sums = 0.0f;
#pragma unroll 1
    for (int place = threadIdx.x; place < places; place += THREADS) p[place] = root[place] < 0.0f ? 1.0f : root[place];
    __syncthreads();
#pragma unroll 1
    for (int place = threadIdx.x; place < places; place += THREADS) {
        const int node = order[place];
        const float own = p[place], others = around_absolute(A, p, place), b = node >= 0 ? h[(long long)node * F] : 0.0f;
        largest = fmaxf(largest, magnitude(b));
        norm = fmaxf(norm, magnitude(own * (own + others)));
        sums = fmaxf(sums, 1.0f + others / own);  // of a row of |A|, about
        refuted += root[place] < 0.0f ? 1.0f : 0.0f;
        r[place] = b;
    }
    together(desk, turn++, refuted, largest, norm);
    const bool broken = !(largest < INFINITE) || !(norm < INFINITE);
    int state = broken ? NONFINITE : refuted > 0.0f ? INDEFINITE : ACTIVE;
    // in units of h's size: the squares in dot products of float32 overflow from 1e19 on
    const float scale = largest > 0.0f && !broken ? largest : 1.0f, size_of_h = largest > 0.0f ? 1.0f : 0.0f;
    float steps = 0.0f, error = size_of_h, best = size_of_h, rho = 0.0f, size_of_b = 0.0f;
    EACH_ROW {  // y = 0, whose residual needs no product
        const float rest = r[place] / scale / p[place];
        size_of_b = fmaxf(size_of_b, magnitude(rest));
        rho += rest * rest;
        r[place] = p[place] = rest;
        y[j] = 0.0f;
    }
    together(desk, turn++, rho, size_of_b, sums);  // also: p is there for all
    if (state == ACTIVE && error <= tol) state = VERIFIED;
    bool looking = false, running = state == ACTIVE;
    while (running) {
        float beta = 0.0f, r_max = 0.0f, x_max = 0.0f, rho_new = 0.0f;
        around(A, p, q, tail);
        if (!looking) {
            float curvature = 0.0f;
            EACH_ROW {
                q[j] += p[place];
                curvature += p[place] * q[j];
            }
            together(desk, turn++, curvature, unused, nothing);
            if (!(curvature > 0.0f) && rho != 0.0f) {  // also NaN
                state = INDEFINITE;
                break;
            }
            const float alpha = curvature > 0.0f ? rho / curvature : 0.0f;
            EACH_ROW {
                y[j] += alpha * p[place];
                const float rest = r[place] - alpha * q[j];
                r[place] = rest;
                rho_new += rest * rest;
                r_max = fmaxf(r_max, magnitude(rest));
                x_max = fmaxf(x_max, magnitude(y[j]));
            }
            together(desk, turn++, rho_new, r_max, x_max);
            beta = rho > 0.0f ? rho_new / rho : 0.0f;
            steps += 1.0f;
            // a little below aim: the recursion is a shade too optimistic, and a refused claim costs a product
            if (r_max <= 0.8f * aim * (sums * x_max + size_of_b) || r_max == 0.0f) state = CLAIMED;
            else if (steps >= (float)max_steps) state = EXHAUSTED;
            looking = state != ACTIVE;
        } else {  // the true residual decides, in the units of J; where it refutes, CG begins anew from it
            EACH_ROW {
                const int node = order[place];
                const float own = root[place], b = node >= 0 ? h[(long long)node * F] / scale / own : 0.0f;
                const float rest = b - (q[j] + y[j]);
                r[place] = rest;
                rho_new += rest * rest;
                r_max = fmaxf(r_max, magnitude(rest * own));
                x_max = fmaxf(x_max, magnitude(y[j] / own));
            }
            together(desk, turn++, rho_new, r_max, x_max);
            const float size = norm * x_max + size_of_h;
            error = r_max == 0.0f ? 0.0f : r_max / (size == 0.0f ? 1.0f : size);
            if (state == CLAIMED) state = error > 0.9f * best ? STALLED : ACTIVE;
            if (error <= tol) state = VERIFIED;
            else aim *= fmaxf(0.5f * tol / error, 0.05f);  // what looked small in the units of A was not in those of J
            best = fminf(best, error);
            looking = false;
            running = state == ACTIVE;
        }
        rho = rho_new;
        EACH_ROW p[place] = looking ? y[j] : beta != 0.0f ? r[place] + beta * p[place] : r[place];
        __syncthreads();
    }

    const bool lost = state == INDEFINITE || state == NONFINITE;
    EACH_ROW if (order[place] >= 0)
        out[(long long)order[place] * F] = lost ? NOT_A_NUMBER : y[j] / root[place] * scale;
    if (threadIdx.x == 0) {
        const long long row = (long long)gridDim.y * F;
        report[0] = (float)state;
        report[row] = steps;
        report[2 * row] = lost ? NOT_A_NUMBER : error;
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
