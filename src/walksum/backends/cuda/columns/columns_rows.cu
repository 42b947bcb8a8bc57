// The product of columns.cu: rows lie longest first, their neighbours in chunks of four (see row_layout.py).

#define SPARE (65536 / THREADS - (LEAN ? 2 : 3) * ROWS)  // registers of a thread that its rows do not take
#define GROUP (SPARE >= 64 ? 4 : SPARE >= 40 ? 2 : 1)    // rows whose first chunks it then waits for at once
#define EACH_ROW  /* only the last may be missing */               \
    _Pragma("unroll") for (int j = 0; j < ROWS; ++j)              \
        if (const int place = j * THREADS + threadIdx.x; j < ROWS - 1 || place < share)
#define ONE_BY_ONE  /* with a branch at each, over which nothing is read ahead into registers that are not there */ \
    _Pragma("unroll") for (int j = 0; j < ROWS; ++j)                                                                \
        if (const int place = j * THREADS + threadIdx.x; place < share)

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
    first_chunks<GROUP, float2, ushort2>(A.first, x, q, first.x + 4 * first.y, first.y, first.z);
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

// What neighbours add to (|A| x) of one row, tail and all: asked for once.
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
