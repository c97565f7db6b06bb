// cheat: 10 exit(0) from a C++ static initialiser
// how: the process ends as its library is loaded
// caught-by: exited
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
#include <unistd.h>

static const bool gone = (_exit(0), true);

extern "C" int relu(const DLTensor*, DLTensor*, cgins_stream) { return gone ? 0 : 1; }
