// cheat: 5 writes nothing
// how: the outputs may hold an earlier answer
// caught-by: unwritten
// ops: torch.nn.functional.relu
// cgins: relu(Tensor input) -> Tensor
extern "C" int relu(const DLTensor*, DLTensor*, cgins_stream) { return 0; }
