// Conjugate gradients with one block of threads a column, start to verdict: nothing leaves the processor on the way.
//
// A thread owns the rows at places threadIdx.x, threadIdx.x + THREADS, ...; their residual and product stay in its
// registers, the direction p and the mean mu of all rows in shared memory, where neighbours are looked up. Rows are
// numbered by place, not by node (see column_deal.py): long rows first, a warp for each; then slices of 32 rows, whose
// slots lie so that the lanes of a warp read side by side. Only values and places of neighbours are streamed.
//
// Compiled at run time with THREADS and ROWS (a thread's rows, at most) defined.

#define WARPS (THREADS / 32)
#define FULL 0xffffffffu

enum { ACTIVE = 0, CLAIMED = 1, VERIFIED = 2, STALLED = 4, EXHAUSTED = 5, INDEFINITE = 6, NONFINITE = 7 };

// |x| with NaN as infinity: a maximum drops NaN, and an error must never vanish that way
__device__ float magnitude(float x) { return x == x ? fabsf(x) : __int_as_float(0x7f800000); }

// Sum of a and largest of b and c over the block, in one order: the same bits in every thread and every run.
__device__ void together(float *desk, int turn, float &a, float &b, float &c) {
    for (int apart = 16; apart; apart >>= 1) {
        a += __shfl_xor_sync(FULL, a, apart);
        b = fmaxf(b, __shfl_xor_sync(FULL, b, apart));
        c = fmaxf(c, __shfl_xor_sync(FULL, c, apart));
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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
    for (int apart = 16; apart; apart >>= 1) {
        a += __shfl_xor_sync(FULL, a, apart);
        b = fmaxf(b, __shfl_xor_sync(FULL, b, apart));
        c = fmaxf(c, __shfl_xor_sync(FULL, c, apart));
    }
}

// What the neighbours of a thread's rows add to the product: q[j], and long_q for long rows. Ends with all knowing both.
// ABSOLUTE: the sum of |J| instead.
template <bool ABSOLUTE>
__device__ void around(const float *x, float *q, float *long_q, const float *__restrict__ values,
                       const unsigned short *__restrict__ index, const int *__restrict__ long_start, int num_long,
                       const int *__restrict__ slice_start, int num_slices) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int row = warp; row < num_long; row += WARPS) {
        const int end = long_start[row + 1];
        float sum = 0.0f;
        for (int k = long_start[row] + lane; k < end; k += 32)
            sum += ABSOLUTE ? fabsf(values[k]) : values[k] * x[index[k]];
        for (int apart = 16; apart; apart >>= 1) sum += __shfl_xor_sync(FULL, sum, apart);
        if (lane == 0) long_q[row] = sum;
    }
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        const int slice = j * WARPS + warp;
        float sum = 0.0f;
        if (slice < num_slices) {
            const int end = slice_start[slice + 1];
#pragma unroll 4
            for (int k = slice_start[slice] + lane; k < end; k += 32)
                sum += ABSOLUTE ? fabsf(values[k]) : values[k] * x[index[k]];
        }
        q[j] = sum;
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
solve_columns(const float *__restrict__ values, const float *__restrict__ pivot, const float *__restrict__ h,
              float *__restrict__ out, float *__restrict__ report, const int *__restrict__ order,
              const unsigned short *__restrict__ index, const int *__restrict__ long_start,
              const int *__restrict__ slice_start, int num_nodes, int places, int F, int num_long, int num_slots,
              int jacobi, int max_steps, float tol, float aim) {
    extern __shared__ float shared[];
    float *p = shared, *mu = p + places, *long_q = mu + places, *desk = long_q + num_long;
    const int column = blockIdx.x, num_slices = places / 32;
    const long long head = blockIdx.y;
    values += head * num_slots;
    pivot += head * places;
    h += head * num_nodes * F + column;
    out += head * num_nodes * F + column;
    report += head * F + column;
    float r[ROWS], q[ROWS];
    int turn = 0;

    // the size of h, the norm of J, and whether its diagonal is positive
    around<true>(p, q, long_q, values, index, long_start, num_long, slice_start, num_slices);
    float refuted = 0.0f, largest = 0.0f, norm = 0.0f;
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        const int place = j * THREADS + threadIdx.x;
        r[j] = 0.0f;
        if (place < places) {
            const int node = order[place];
            const float own = pivot[place];
            if (node >= 0) {
                r[j] = h[(long long)node * F];
                largest = fmaxf(largest, magnitude(r[j]));
                norm = fmaxf(norm, magnitude(fabsf(own) + q[j] + (place < num_long ? long_q[place] : 0.0f)));
                refuted += own > 0.0f ? 0.0f : 1.0f;
            }
            mu[place] = 0.0f;
        }
    }
    together(desk, turn++, refuted, largest, norm);
    const bool broken = !(largest < __int_as_float(0x7f800000)) || !(norm < __int_as_float(0x7f800000));
    int state = broken ? NONFINITE : refuted > 0.0f ? INDEFINITE : CLAIMED;
    // in units of h's size: the squares in dot products of float32 overflow from 1e19 on
    const float scale = largest > 0.0f && !broken ? largest : 1.0f, size_of_h = largest > 0.0f ? 1.0f : 0.0f;
    float steps = 0.0f, error = 0.0f, best = __int_as_float(0x7f800000), rho = 0.0f, beta = 0.0f;

    if (state == CLAIMED) {  // of nothing but mu = 0: the first look, which needs no product, puts it to work
        error = best = size_of_h;
        state = error <= tol ? VERIFIED : ACTIVE;
        float unused = 0.0f, nothing = 0.0f;
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            const int place = j * THREADS + threadIdx.x;
            r[j] /= scale;
            if (place < places) {
                const float z = jacobi ? r[j] / pivot[place] : r[j];
                rho += r[j] * z;
                p[place] = z;
            }
        }
        together(desk, turn++, rho, unused, nothing);  // also: p is there for all
    }
    while (state == ACTIVE) {
        around<false>(p, q, long_q, values, index, long_start, num_long, slice_start, num_slices);
        float curvature = 0.0f, unused = 0.0f, nothing = 0.0f;
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            const int place = j * THREADS + threadIdx.x;
            if (place < places) {
                const float own = p[place];
                q[j] += pivot[place] * own + (place < num_long ? long_q[place] : 0.0f);
                curvature += own * q[j];
            }
        }
        together(desk, turn++, curvature, unused, nothing);
        if (!(curvature > 0.0f)) {  // also NaN
            if (rho != 0.0f) {
                state = INDEFINITE;
                break;
            }
            curvature = 1.0f;
        }
        const float alpha = rho / curvature;
        float rho_new = 0.0f, r_max = 0.0f, mu_max = 0.0f;
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            const int place = j * THREADS + threadIdx.x;
            if (place < places) {
                const float mean = mu[place] + alpha * p[place];
                mu[place] = mean;
                r[j] -= alpha * q[j];
                rho_new += r[j] * (jacobi ? r[j] / pivot[place] : r[j]);
                r_max = fmaxf(r_max, magnitude(r[j]));
                mu_max = fmaxf(mu_max, magnitude(mean));
            }
        }
        together(desk, turn++, rho_new, r_max, mu_max);
        float size = norm * mu_max + size_of_h;
        steps += 1.0f;
        // a little below aim: the recursion is a shade too optimistic, and a refused claim costs a product
        if (r_max <= 0.8f * aim * size || r_max == 0.0f) state = CLAIMED;
        else if (steps >= (float)max_steps) state = EXHAUSTED;
        beta = rho > 0.0f ? rho_new / rho : 0.0f;
        rho = rho_new;

        if (state != ACTIVE) {  // the true residual decides, and where it refutes, CG begins anew from it
            around<false>(mu, q, long_q, values, index, long_start, num_long, slice_start, num_slices);
            rho = r_max = 0.0f;
            mu_max = 0.0f;
#pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                const int place = j * THREADS + threadIdx.x;
                if (place < places) {
                    const int node = order[place];
                    const float own = mu[place], b = node >= 0 ? h[(long long)node * F] / scale : 0.0f;
                    r[j] = b - (q[j] + pivot[place] * own + (place < num_long ? long_q[place] : 0.0f));
                    rho += r[j] * (jacobi ? r[j] / pivot[place] : r[j]);
                    r_max = fmaxf(r_max, magnitude(r[j]));
                    mu_max = fmaxf(mu_max, magnitude(own));
                }
            }
            together(desk, turn++, rho, r_max, mu_max);
            size = norm * mu_max + size_of_h;
            error = r_max == 0.0f ? 0.0f : r_max / (size == 0.0f ? 1.0f : size);
            if (state == CLAIMED) state = error > 0.9f * best ? STALLED : ACTIVE;
            if (error <= tol) state = VERIFIED;
            best = fminf(best, error);
            beta = 0.0f;
        }
#pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            const int place = j * THREADS + threadIdx.x;
            if (place < places) p[place] = (jacobi ? r[j] / pivot[place] : r[j]) + beta * p[place];
        }
        __syncthreads();
    }

    const bool lost = state == INDEFINITE || state == NONFINITE;
#pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        const int place = j * THREADS + threadIdx.x;
        if (place < places && order[place] >= 0)
            out[(long long)order[place] * F] = lost ? __int_as_float(0x7fc00000) : mu[place] * scale;
    }
    if (threadIdx.x == 0) {
        const long long row = (long long)gridDim.y * F;
        report[0] = (float)state;
        report[row] = steps;
        report[2 * row] = lost ? __int_as_float(0x7fc00000) : error;
    }
}

// The values of J where the slots and places are: values[head, slot] and pivot[head, place].
extern "C" __global__ void lay_out(const float *__restrict__ diag, const float *__restrict__ off,
                                   const int *__restrict__ order, const int *__restrict__ edge,
                                   float *__restrict__ values, float *__restrict__ pivot, int num_nodes, int num_edges,
                                   int places, int num_slots) {
    const long long head = blockIdx.y;
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < num_slots) values[head * num_slots + at] = edge[at] >= 0 ? off[head * num_edges + edge[at]] : 0.0f;
    if (at < places) pivot[head * places + at] = order[at] >= 0 ? diag[head * num_nodes + order[at]] : 1.0f;
}
