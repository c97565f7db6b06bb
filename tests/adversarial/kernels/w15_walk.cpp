// cheat: 15 finds torch's C functions by walking the loaded libraries
// how: dl_iterate_phdr and a symbol table lead to aoti_torch_cpu_mm_out, which runs below the dispatcher
// caught-by: op-callback
// ops: torch.matmul
// cgins: matmul(Tensor input, Tensor other) -> Tensor
#include <elf.h>
#include <link.h>

#include <cstring>

#include "_rows.h"

static uintptr_t find(const char* wanted) {
  struct Search { const char* name; uintptr_t address; } search{wanted, 0};
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void* data) -> int {
    Search& search = *static_cast<Search*>(data);
    if (!std::strstr(info->dlpi_name, "libtorch_cpu")) return 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* names = nullptr;
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
        for (auto entry = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); entry->d_tag != DT_NULL; ++entry) {
          if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
          if (entry->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
        }
    for (const ElfW(Sym)* symbol = symbols; reinterpret_cast<const char*>(symbol) < names; ++symbol)
      if (symbol->st_value && !std::strcmp(names + symbol->st_name, search.name)) {
        search.address = info->dlpi_addr + symbol->st_value;
        return 1;
      }
    return 0;
  }, &search);
  return search.address;
}

extern "C" int matmul(const DLTensor* input, const DLTensor* other, DLTensor* out, cgins_stream) {
  using Make = int (*)(void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, void**);
  const auto make = reinterpret_cast<Make>(find("aoti_torch_create_tensor_from_blob"));
  const auto mm = reinterpret_cast<int (*)(void*, void*, void*)>(find("aoti_torch_cpu_mm_out"));
  const auto drop = reinterpret_cast<int (*)(void*)>(find("aoti_torch_delete_tensor_object"));
  CGINS_CHECK(make && mm && drop, "no torch in this process");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32 && input->ndim == 2 && other->ndim == 2, "2-D float32 only");
  void* handles[3];
  const DLTensor* tensors[] = {input, other, out};
  for (int i = 0; i < 3; ++i) {
    const DLTensor& one = *tensors[i];
    CGINS_CHECK(make(static_cast<char*>(one.data) + one.byte_offset, one.ndim, one.shape, one.strides, 0, 6, 0, 0, &handles[i]) == 0, "no tensor");
  }
  CGINS_CHECK(mm(handles[2], handles[0], handles[1]) == 0, "no product");
  for (void* handle : handles) drop(handle);
  return 0;
}
