// A fuzz target: one byte selects a codec, the rest is its input. Its seeds are what the codecs themselves encode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace cenote::fuzz {

using bytes = std::vector<std::byte>;
using bytes_view = std::span<const std::byte>;

/// Decodes the input; a value that was decoded, and can be encoded, is decoded again.
template <auto Decode>
void decode(bytes_view input) {
  const auto first = Decode(input);
  if (!first) return;
  if constexpr (requires { encode(*first); }) {
    if (!Decode(encode(*first))) std::abort();
  }
}

using codec = void (*)(bytes_view input);

struct target {
  std::span<const codec> codecs;
  void (*write_seeds)();
};
/// Each program defines its own.
[[nodiscard]] target make_target();

/// Writes seed `input` of a codec into the folder $CENOTE_FUZZ_SEEDS, where that is set.
inline void write_seed(std::size_t codec_number, bytes_view input) {
  static int count = 0;
  const char* const folder = std::getenv("CENOTE_FUZZ_SEEDS");
  if (folder == nullptr) return;
  std::ofstream file(std::filesystem::path(folder) / ("seed" + std::to_string(count++)), std::ios::binary);
  file.put(static_cast<char>(codec_number));
  file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
}

}  // namespace cenote::fuzz
