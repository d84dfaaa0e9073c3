// The entry points of libFuzzer.
#include "tests/fuzz/target.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  cenote::fuzz::make_target().write_seeds();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto codecs = cenote::fuzz::make_target().codecs;
  codecs[data[0] % codecs.size()](std::as_bytes(std::span(data, size)).subspan(1));
  return 0;
}
