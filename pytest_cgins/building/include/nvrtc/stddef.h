/* Stands in for the C library's header: NVRTC declares size_t and ptrdiff_t itself. */
#ifndef CGINS_NVRTC_STDDEF_H_
#define CGINS_NVRTC_STDDEF_H_
#ifndef NULL
#define NULL 0
#endif
namespace std {
using ::size_t;
using ::ptrdiff_t;
}  // namespace std
#endif
