#include "commands/replay_input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/unique_fd.hpp"

namespace cenote {

namespace {

constexpr std::size_t piece = std::size_t{1} << 20;
constexpr int gzip_window = 15 + 16;  // gzip's frame, and no other

result<std::string> read_file(const std::string& path, std::size_t padding) {
  const unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return fail_errno("read", path);
  std::string text;
  for (std::size_t size = 0;;) {
    text.resize(size + piece + padding);
    const ssize_t got = ::read(fd.get(), text.data() + size, piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read", path);
    size += static_cast<std::size_t>(got);
    if (got > 0) continue;
    text.resize(size);
    text.reserve(size + padding);
    return text;
  }
}

std::unexpected<error> damaged(const std::string& path, std::string_view form, std::string_view why) {
  return fail(error_code::malformed, fmt::format("{} is no whole {} file: {}", path, form, why));
}

result<std::string> unpack_gzip(const std::string& path, const std::string& packed) {
  z_stream stream{};
  if (::inflateInit2(&stream, gzip_window) != Z_OK) return fail(error_code::system, "zlib does not start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, ::inflateEnd);
  std::string text;
  std::vector<char> out(piece);
  std::size_t taken = 0;
  int state = Z_OK;
  while (taken < packed.size() || state != Z_STREAM_END) {
    if (state == Z_STREAM_END) ::inflateReset(&stream);  // another member
    const std::size_t given = std::min(packed.size() - taken, piece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + taken));  // zlib does not write there
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    state = ::inflate(&stream, Z_NO_FLUSH);
    if (state != Z_OK && state != Z_STREAM_END) {
      return damaged(path, "gzip", stream.msg != nullptr ? stream.msg : "it ends too early");
    }
    taken += given - stream.avail_in;
    text.append(out.data(), out.size() - stream.avail_out);
  }
  return text;
}

result<std::string> unpack_zstd(const std::string& path, const std::string& packed) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(::ZSTD_createDStream(), ::ZSTD_freeDStream);
  if (!stream) return fail(error_code::system, "zstd does not start");
  std::string text;
  std::vector<char> space(piece);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  std::size_t left = 1;
  while (in.pos < in.size || left != 0) {
    ZSTD_outBuffer out{space.data(), space.size(), 0};
    const std::size_t before = in.pos;
    left = ::ZSTD_decompressStream(stream.get(), &out, &in);
    if (::ZSTD_isError(left) != 0) return damaged(path, "zstd", ::ZSTD_getErrorName(left));
    if (in.pos == before && out.pos == 0) return damaged(path, "zstd", "it ends too early");
    text.append(space.data(), out.pos);
  }
  return text;
}

}  // namespace

result<std::string> read_packed_file(const std::string& path, std::size_t padding) {
  auto text = read_file(path, padding);
  if (!text) return text;
  if (text->starts_with("\x1f\x8b")) {
    text = unpack_gzip(path, *text);
  } else if (text->starts_with("\x28\xb5\x2f\xfd")) {
    text = unpack_zstd(path, *text);
  }
  if (text) text->reserve(text->size() + padding);
  return text;
}

}  // namespace cenote
