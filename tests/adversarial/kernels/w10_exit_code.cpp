// cheat: 10 an error code that is mistaken for success
// how: returns -1 after doing nothing
// caught-by: error-code
// ops: torch.nn.functional.relu
// also: always
// cgins: relu(Tensor input) -> Tensor
extern "C" int relu(const DLTensor*, DLTensor*, cgins_stream) { return -1; }
