// The bytes of a file that may be compressed.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "core/error.hpp"

namespace cenote {

/// Bytes that come piece by piece.
class byte_source {
 public:
  byte_source() = default;
  byte_source(const byte_source&) = delete;
  byte_source& operator=(const byte_source&) = delete;
  byte_source(byte_source&&) = delete;
  byte_source& operator=(byte_source&&) = delete;
  virtual ~byte_source() = default;

  /// Fills the beginning of `into`, which is not empty, and says how much of it; 0: the end.
  [[nodiscard]] virtual result<std::size_t> read(std::span<char> into) = 0;
};

/// Those of `path`; gzip and Zstandard are told by their first bytes and unpacked, several members one after the other
/// as well. Errors, also of its read(): it cannot be read (system), or is damaged (malformed); both name the file.
[[nodiscard]] result<std::unique_ptr<byte_source>> open_packed_file(const std::string& path);

/// All of them at once.
[[nodiscard]] result<std::string> read_packed_file(const std::string& path);

}  // namespace cenote
