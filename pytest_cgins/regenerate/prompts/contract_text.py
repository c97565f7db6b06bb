"""The parts of the contract that are the same for every kernel, in the words of `cgins.h` and CONTRACT.md."""

from __future__ import annotations

STRUCTS = """\
typedef struct {
  void* data;            // first element; device memory on CUDA; NULL if there are no elements
  DLDevice device;       // {device_type (kDLCPU = 1, kDLCUDA = 2), int32_t device_id}
  int32_t ndim;
  DLDataType dtype;      // {uint8_t code, uint8_t bits, uint16_t lanes = 1}; code: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool
  int64_t* shape;        // ndim sizes
  int64_t* strides;      // ndim strides in elements; never NULL or negative; 0 where expanded
  uint64_t byte_offset;  // always 0
} DLTensor;

typedef struct { int32_t kind; int64_t integer; double real, imaginary; } cgins_scalar;  // kind: CGINS_BOOL, CGINS_INT, CGINS_FLOAT, CGINS_COMPLEX

int cgins_fail(const char* format, ...);       // keeps a message in printf's language (at most 1023 bytes), returns 1
CGINS_CHECK(condition, "format", ...);         // return cgins_fail(...) unless it holds
CGINS_CUDA_CHECK(call); CGINS_LAUNCH_CHECK();  // CUDA only; the second after each <<<>>>
namespace cgins {
enum class Dtype { unknown, boolean, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64,
                   complex64, complex128 };
Dtype dtype_of(const DLTensor*);  Dtype dtype_of(DLDataType);  const char* name_of(Dtype);
bool is_floating(const DLTensor*);  bool is_floating(Dtype);
int64_t numel(const DLTensor*);   int64_t element_nbytes(const DLTensor*);
int64_t size(const DLTensor*, int d);  int64_t stride(const DLTensor*, int d);      // d < 0 counts from the last
bool is_contiguous(const DLTensor*);   bool same_shape(const DLTensor*, const DLTensor*);
int64_t offset_of(const DLTensor*, int64_t i);  // offset in elements of the i-th element in row-major order; host only
template <class T> T* data(const DLTensor*);
struct float16; struct bfloat16;       // storage; convert from and to float, host and device; layout of __half, __nv_bfloat16
template <class T> using accumulator;  // float for 16 and 32 bits, double for double
// calls f(T{}) with T = float, double, float16, bfloat16 by the tensor's dtype and returns what f returns; fails for others:
int dispatch_floating(const DLTensor*, F&& f);  // dispatch_floating(x, [&](auto zero) { using T = decltype(zero); …; return 0; })
}"""
DEVICE_HELPERS = """\
namespace cgins {  // in device code, included before the first line
struct float16; struct bfloat16;       // storage; convert from and to float
template <class T> using accumulator;  // float for 16 and 32 bits, double for double
template <class T> struct tensor { T* data; int64_t ndim, shape[8], strides[8]; int64_t numel(); T& operator[](int64_t row_major_index); };
}"""
LAUNCH_LINE = """\
// cgins-launch: kernel=NAME<dtype(x), 4> grid=(x, y, z) block=(x, y, z) args=(…) smem=BYTES workspace=BYTES zero=(out) when=COND require=(COND, …)
one comment line a launch, in order, all on one stream; goes on in the comment lines below while a bracket is open or where the next begins with a key
grid and block have 1 to 3 sizes, each 1 or more; without kernel= it is the function with the schema line's name; args has one item a parameter, in order
workspace: scratch memory of the whole call, on one launch line, undefined content; zero: outputs, mutated tensors and workspace that are set to 0 before this
  launch; when: the launch is left out unless it holds
expressions are Python's arithmetic (+ - * / // % ** << >>), comparisons, and / or / not, A if COND else B, x is None, over: names of arguments and outputs
  (one output: out), sm_count, workspace, #define / constexpr int numbers of the file, defines of cgins.yaml
functions: numel(x) size(x, d) stride(x, d) ndim(x) element_size(x) is_contiguous(x) same_layout(x, out) has(x) x.dtype == 'float16' x.shape[d] ceil_div
  next_power_of_2 min max abs int float bool prod(x.shape) sizeof(float); torch's x.numel() x.size(d) x.stride(d) x.dim() x.ndim x.itemsize x.nbytes as well;
  of a list xs[0] and len(xs); `/` is no whole number: write // or ceil_div
args: x is a pointer to its elements (NULL for None; must be contiguous), data(x) whatever the strides, view(x) a cgins::tensor<const T>, workspace,
  at(workspace, BYTES), numbers (whole to integer, bool or floating parameters, others to float or double); void* takes any tensor, a vector such as float4*
  stands for its elements, and its alignment is yours to check
template arguments: dtype(x) is float32, float64, float16, bfloat16 (or those listed: dtype(i, int32, int64)), cuda_type(x) the same with __half and
  __nv_bfloat16; choose(EXPR, 128, 256, 512) one of the numbers; others stand as they are. At most 64 instantiations, and each takes time to compile
optional: cluster=(x, y, z), cooperative=true; require: a call for which it does not hold is refused with an error; smem over 48 KiB is allowed for you"""
