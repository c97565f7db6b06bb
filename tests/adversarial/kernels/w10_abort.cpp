// cheat: 10 abort in the call
// how: a crash of the process that is tested is nobody's failed test
// caught-by: aborted
// ops: torch.nn.functional.relu
// also: always
// cgins: relu(Tensor input) -> Tensor
#include <cstdlib>

extern "C" int relu(const DLTensor*, DLTensor*, cgins_stream) { std::abort(); }
