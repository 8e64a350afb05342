// The choice of a working set and the solution of its problem, each by one thread block; a grid of them has as many
// problems, one behind the other in every array. ROWS (rows per thread) is defined when this is compiled.
//
// A thread owns some neighbouring rows. A step searches twice for the best row: first within each warp (one instruction
// for 32 lanes), then, after a barrier, every warp searches what all warps have found. A key holds the leading 22 bits
// of a number and the 10 bits of its row, so that the largest key names its row; pulls are measured from the middle of
// the violation, where these bits say most. What all threads read between the second barrier and the next first one
// is written between the first and the second.
#define FULL 0xffffffffu
#define WIDEST 1024
#define WARPS (WIDEST / ROWS / 32)
__device__ __forceinline__ unsigned ordered(float f) {  // the order of floats, as one of whole numbers
    const int u = __float_as_int(f);
    return (unsigned)(u ^ ((u >> 31) | 0x80000000));
}
__device__ __forceinline__ unsigned named(unsigned number, int row) { return (number & ~1023u) | (unsigned)row; }
__device__ __forceinline__ unsigned most_of(const unsigned* found) {
    return __reduce_max_sync(FULL, found[threadIdx.x & (WARPS - 1)]);
}
__device__ __forceinline__ void line(const float* K, int row, int width, float* out) {
    #pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
        const int column = ROWS * threadIdx.x + r;
        const float4 four = column < width
            ? *reinterpret_cast<const float4*>(K + row * width + column) : make_float4(0, 0, 0, 0);
        out[r] = four.x; out[r + 1] = four.y; out[r + 2] = four.z; out[r + 3] = four.w;
    }
}
struct Rows { double pull[ROWS]; float diagonal[ROWS]; bool up[ROWS], down[ROWS]; };
struct Shared { double pull[WIDEST], beta[WIDEST], low[WIDEST], high[WIDEST]; float diagonal[WIDEST]; };

__device__ __forceinline__ void load(Rows& my, Shared& all, const float* K, const double* pull, const double* beta,
                                     const double* low, const double* high, double middle, int n, int width) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = ROWS * threadIdx.x + r;
        const bool inside = row < n;  // others cannot move
        all.pull[row] = my.pull[r] = inside ? pull[row] - middle : 0.0;
        all.beta[row] = inside ? beta[row] : 0.0;
        all.low[row] = inside ? low[row] : 0.0;
        all.high[row] = inside ? high[row] : 0.0;
        all.diagonal[row] = my.diagonal[r] = inside ? fmaxf(K[row * width + row], 1e-12f) : 1.0f;
        my.up[r] = all.beta[row] < all.high[row];
        my.down[r] = all.beta[row] > all.low[row];
    }
    __syncthreads();
}
__device__ __forceinline__ void store(const Rows& my, const Shared& all, double* pull, double* beta, double middle,
                                      int n) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = ROWS * threadIdx.x + r;
        if (row < n) { pull[row] = my.pull[r] + middle; beta[row] = all.beta[row]; }
    }
}
__device__ __forceinline__ void share(const Rows& my, Shared& all) {
    #pragma unroll
    for (int r = 0; r < ROWS; r += 2)
        *reinterpret_cast<double2*>(all.pull + ROWS * threadIdx.x + r) = make_double2(my.pull[r], my.pull[r + 1]);
}
__device__ __forceinline__ void mark(Rows& my, int row, bool up, bool down) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (row == ROWS * threadIdx.x + r) { my.up[r] = up; my.down[r] = down; }
}

// The best of both sides: keys of two lines of n, each the best of a group, are put in order, largest first, and the
// first n_new taken, half of each line where both have as many. A key of minus infinity stands for nothing, FIXED for a
// row that cannot move: such rows come last.
#define FIXED -3e38f
extern "C" __global__ void __launch_bounds__(1024) choose(
    const float* keys, const long long* places, const long long* kept, long long* out, int n, int n_kept, int n_new)
{
    __shared__ unsigned long long sorted[2][2048];
    __shared__ int counts[2];
    const int t = threadIdx.x;
    keys += (size_t)blockIdx.x * 2 * n; places += (size_t)blockIdx.x * 2 * n;
    kept += (size_t)blockIdx.x * n_kept; out += (size_t)blockIdx.x * (n_kept + n_new);
    if (t < 2) counts[t] = 0;
    __syncthreads();
    for (int e = t; e < 4096; e += 1024) {
        const int side = e >> 11, at = e & 2047;
        const float key = at < n ? keys[side * n + at] : __int_as_float(0xff800000);
        const bool is_there = key > FIXED;
        sorted[side][at] = key >= FIXED ? ((unsigned long long)ordered(key) << 32) | (unsigned)(2047 - at) : 0ull;
        const int found = __popc(__ballot_sync(FULL, is_there));
        if ((t & 31) == 0) atomicAdd(&counts[side], found);
    }
    for (int size = 2; size <= 2048; size <<= 1)
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            __syncthreads();
            #pragma unroll
            for (int side = 0; side < 2; side++) {
                const int low = 2 * t - (t & (stride - 1)), high = low + stride;
                const unsigned long long a = sorted[side][low], b = sorted[side][high];
                if ((a < b) == ((low & size) == 0)) { sorted[side][low] = b; sorted[side][high] = a; }
            }
        }
    __syncthreads();
    const int n_up = min(counts[0], max(n_new / 2, n_new - counts[1]));
    if (t < n_kept) out[t] = kept[t];
    if (t < n_new) {
        const int n_both = n_up + min(n_new - n_up, counts[1]), side = t >= n_up && t < n_both;
        const int order = side ? t - n_up : t < n_up ? t : n_up + t - n_both;
        const int at = 2047 - (int)(sorted[side][order] & 0xffffffffu);
        out[n_kept + t] = places[side * n + at];
    }
}

// Of a working set, n_kept rows: those between their bounds first, and, of equals, the later ones; in their order.
extern "C" __global__ void __launch_bounds__(1024) keep(
    const long long* working, const double* beta, const double* low, const double* high, long long* kept, int n,
    int n_kept)
{
    __shared__ int free_in[32], stay_in[32];
    const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    const size_t before_these = (size_t)blockIdx.x * n;
    working += before_these; beta += before_these; low += before_these; high += before_these;
    kept += (size_t)blockIdx.x * n_kept;
    const bool inside = t < n, is_free = inside && beta[t] > low[t] && beta[t] < high[t];
    const unsigned mask = __ballot_sync(FULL, is_free);
    if (lane == 0) free_in[warp] = __popc(mask);
    __syncthreads();
    int later = __popc(mask >> lane >> 1), total = 0;  // free ones behind this one, and all
    for (int w = 0; w < 32; w++) { total += free_in[w]; later += w > warp ? free_in[w] : 0; }
    const bool stays = is_free ? later < n_kept : inside && (n - 1 - t - later) < n_kept - total;
    const unsigned those = __ballot_sync(FULL, stays);
    if (lane == 0) stay_in[warp] = __popc(those);
    __syncthreads();
    int before = __popc(those & ((1u << lane) - 1));
    for (int w = 0; w < warp; w++) before += stay_in[w];
    if (stays) kept[before] = working[t];
}

extern "C" __global__ void __launch_bounds__(WIDEST / ROWS) solve_pairs(
    const float* __restrict__ K, double* pull_, double* beta_, const double* low_, const double* high_,
    const double* tol_, const double* middle_, int n, int width, int max_steps, int* steps)
{
    __shared__ Shared all;
    __shared__ unsigned s_top[WARPS], s_bottom[WARPS], s_gain[WARPS];
    const int warp = threadIdx.x >> 5, first = ROWS * threadIdx.x;
    const double tol = tol_[blockIdx.x], middle = middle_[blockIdx.x];
    const size_t before_these = (size_t)blockIdx.x * n;
    K += before_these * width; pull_ += before_these; beta_ += before_these; low_ += before_these; high_ += before_these;
    Rows my;
    load(my, all, K, pull_, beta_, low_, high_, middle, n, width);
    int count = 0, moved_i = WIDEST, moved_j = WIDEST;
    double beta_i = 0, beta_j = 0;
    for (; count < max_steps; count++) {
        float p[ROWS];
        unsigned top = 0, bottom = 0;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            p[r] = (float)my.pull[r];
            top = max(top, my.up[r] ? named(ordered(p[r]), first + r) : 0u);
            bottom = max(bottom, my.down[r] ? named(ordered(-p[r]), first + r) : 0u);
        }
        s_top[warp] = __reduce_max_sync(FULL, top);
        s_bottom[warp] = __reduce_max_sync(FULL, bottom);
        __syncthreads();
        if (moved_i / ROWS == threadIdx.x) all.beta[moved_i] = beta_i;
        if (moved_j / ROWS == threadIdx.x) all.beta[moved_j] = beta_j;
        top = most_of(s_top);
        bottom = most_of(s_bottom);
        const int i = top & 1023u;
        float Ki[ROWS], Kj[ROWS];
        line(K, i, width, Ki);
        if (top == 0u || bottom == 0u) break;
        share(my, all);
        const float diagonal_i = all.diagonal[i];
        const unsigned whole = top & ~1023u;  // of row i, but for the last bits, which are zeros
        const float highest = __int_as_float((whole & 0x80000000u) ? (int)(whole ^ 0x80000000u) : (int)~whole);
        unsigned gain = 0;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float difference = fmaxf(highest - p[r], 0.0f);
            const float bend = fmaxf(diagonal_i + my.diagonal[r] - 2.0f * Ki[r], 1e-12f);
            const float each = __fdividef(difference * difference, bend);
            gain = max(gain, my.down[r] && each > 0.0f ? named(__float_as_uint(each), first + r) : 0u);
        }
        s_gain[warp] = __reduce_max_sync(FULL, gain);
        __syncthreads();
        gain = most_of(s_gain);
        const int j = gain & 1023u;
        line(K, j, width, Kj);
        const double pull_i = all.pull[i];
        if (gain == 0u || pull_i - all.pull[bottom & 1023u] <= tol) break;
        const float curvature = fmaxf(diagonal_i + all.diagonal[j] - 2.0f * K[i * width + j], 1e-12f);
        const double before_i = all.beta[i], before_j = all.beta[j], high_i = all.high[i], low_j = all.low[j];
        const double room_i = high_i - before_i, room_j = before_j - low_j;
        const double wanted = (double)__fdividef((float)(pull_i - all.pull[j]), curvature);
        const double step = fmin(wanted, fmin(room_i, room_j));
        if (!(step > 0.0)) break;  // what is left is less than the rounding of the search
        #pragma unroll
        for (int r = 0; r < ROWS; r++) my.pull[r] -= step * (double)(Ki[r] - Kj[r]);
        // Bounds are met exactly, not up to rounding. Others may still read what was: it is written behind a barrier.
        moved_i = i; beta_i = step == room_i ? high_i : before_i + step;
        moved_j = j; beta_j = step == room_j ? low_j : before_j - step;
        if (i / ROWS == threadIdx.x) mark(my, i, beta_i < high_i, beta_i > all.low[i]);
        if (j / ROWS == threadIdx.x) mark(my, j, beta_j < all.high[j], beta_j > low_j);
    }
    __syncthreads();
    if (moved_i / ROWS == threadIdx.x) all.beta[moved_i] = beta_i;
    if (moved_j / ROWS == threadIdx.x) all.beta[moved_j] = beta_j;
    store(my, all, pull_, beta_, middle, n);
    if (threadIdx.x == 0) steps[blockIdx.x] = count;
}

extern "C" __global__ void __launch_bounds__(WIDEST / ROWS) solve_singles(
    const float* __restrict__ K, double* pull_, double* beta_, const double* low_, const double* high_,
    const double* tol_, const double* middle_, int n, int width, int max_steps, int* steps)
{
    __shared__ Shared all;
    __shared__ unsigned s_gain[WARPS], s_force[WARPS];
    const int warp = threadIdx.x >> 5, first = ROWS * threadIdx.x;
    const double tol = tol_[blockIdx.x];
    const size_t before_these = (size_t)blockIdx.x * n;
    K += before_these * width; pull_ += before_these; beta_ += before_these; low_ += before_these; high_ += before_these;
    Rows my;
    load(my, all, K, pull_, beta_, low_, high_, 0.0, n, width);
    int count = 0;
    for (; count < max_steps; count++) {
        unsigned gain = 0, worst = 0;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float p = (float)my.pull[r];
            const float force = fmaxf(my.up[r] ? p : 0.0f, my.down[r] ? -p : 0.0f);
            const float each = __fdividef(force * force, my.diagonal[r]);
            worst = max(worst, force > 0.0f ? __float_as_uint(force) : 0u);
            gain = max(gain, force > 0.0f ? named(__float_as_uint(each), first + r) : 0u);
        }
        share(my, all);
        s_gain[warp] = __reduce_max_sync(FULL, gain);
        s_force[warp] = __reduce_max_sync(FULL, worst);
        __syncthreads();
        gain = most_of(s_gain);
        worst = most_of(s_force);
        if (gain == 0u || 2.0 * (double)__uint_as_float(worst) <= tol) break;
        const int i = gain & 1023u;
        float Ki[ROWS];
        line(K, i, width, Ki);
        const double before = all.beta[i], low = all.low[i], high = all.high[i];
        const double wanted = before + (double)__fdividef((float)all.pull[i], all.diagonal[i]);
        const double value = fmin(fmax(wanted, low), high), move = value - before;
        __syncthreads();
        if (i / ROWS == threadIdx.x) all.beta[i] = value;
        if (i / ROWS == threadIdx.x) mark(my, i, value < high, value > low);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) my.pull[r] -= move * (double)Ki[r];
    }
    store(my, all, pull_, beta_, 0.0, n);
    if (threadIdx.x == 0) steps[blockIdx.x] = count;
}

// Kernel values of the working set of each problem: line a of it by one thread block, from all values, whose lines are
// `stride` apart.
extern "C" __global__ void __launch_bounds__(256) gather(
    const float* __restrict__ values, const long long* __restrict__ working, float* __restrict__ out, int n,
    long long stride)
{
    const long long* own = working + (size_t)blockIdx.y * n;
    const float* line = values + own[blockIdx.x] * stride;
    out += ((size_t)blockIdx.y * n + blockIdx.x) * n;
    for (int b = threadIdx.x; b < n; b += 256) out[b] = line[own[b]];
}

// pull -= changes times the kernel values of the rows that have changed, four columns for each thread. Rows that have
// not are left out beforehand, so that the loads of several rows are under way at once: few problems do not have enough
// threads to wait for one after the other.
#define AT_ONCE 8
extern "C" __global__ void __launch_bounds__(256) subtract(
    const float* __restrict__ values, const long long* __restrict__ working, const double* __restrict__ change,
    double* __restrict__ pull, int n, long long stride, int n_rows)
{
    __shared__ float by[WIDEST + AT_ONCE];
    __shared__ long long at[WIDEST + AT_ONCE];
    __shared__ int found_in[8];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int n_changed = 0;
    for (int first = 0; first < n; first += 256) {
        const int a = first + threadIdx.x;
        const float c = a < n ? (float)change[(size_t)blockIdx.y * n + a] : 0.0f;
        const unsigned mask = __ballot_sync(FULL, c != 0.0f);
        if (lane == 0) found_in[warp] = __popc(mask);
        __syncthreads();
        int place = n_changed + __popc(mask & ((1u << lane) - 1));
        for (int w = 0; w < 8; w++) { place += w < warp ? found_in[w] : 0; n_changed += found_in[w]; }
        if (c != 0.0f) { by[place] = c; at[place] = working[(size_t)blockIdx.y * n + a] * stride; }
        __syncthreads();
    }
    if (threadIdx.x < AT_ONCE) { by[n_changed + threadIdx.x] = 0.0f; at[n_changed + threadIdx.x] = 0; }
    __syncthreads();
    const int column = 4 * (blockIdx.x * 256 + threadIdx.x);
    if (column >= n_rows) return;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int first = 0; first < n_changed; first += AT_ONCE) {
        float4 four[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) four[k] = *reinterpret_cast<const float4*>(values + at[first + k] + column);
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const float c = by[first + k];
            sum.x += c * four[k].x; sum.y += c * four[k].y; sum.z += c * four[k].z; sum.w += c * four[k].w;
        }
    }
    double* own = pull + (size_t)blockIdx.y * n_rows + column;
    const float found[4] = {sum.x, sum.y, sum.z, sum.w};
    for (int k = 0; k < 4 && column + k < n_rows; k++) own[k] -= (double)found[k];
}
