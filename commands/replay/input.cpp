#include "commands/replay/input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/unique_fd.hpp"

namespace cenote {

namespace {

constexpr std::size_t piece = std::size_t{1} << 18;
/// Forms of packing that are known, and not read.
struct packed_form {
  std::string_view magic;
  std::string_view name;
};
constexpr packed_form unknown_forms[]{{"\xfd"
                                       "7zX",
                                       "xz"},
                                      {"BZh", "bzip2"},
                                      {"\x04\x22\x4d\x18", "lz4"},
                                      {"PK\x03\x04", "zip"},
                                      {"7z\xbc\xaf", "7z"}};

constexpr int gzip_window = 15 + 16;  // gzip's frame, and no other
constexpr std::size_t magic_size = 4;

class plain_source final : public byte_source {
 public:
  plain_source(const std::string& path, unique_fd fd) : path_(path), fd_(std::move(fd)) {}

  /// What read() will begin with: up to `magic_size` bytes.
  result<std::string_view> peek() {
    head_.resize(magic_size);
    std::size_t size = 0;
    while (size < magic_size) {
      const auto got = read_file(std::span(head_).subspan(size));
      if (!got) return std::unexpected(got.error());
      if (*got == 0) break;
      size += *got;
    }
    head_.resize(size);
    return head_;
  }

  result<std::size_t> read(std::span<char> into) override {
    if (head_.empty()) return read_file(into);
    const std::size_t size = head_.copy(into.data(), into.size());
    head_.erase(0, size);
    return size;
  }

 private:
  result<std::size_t> read_file(std::span<char> into) {
    while (true) {
      const ssize_t got = ::read(fd_.get(), into.data(), into.size());
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) return fail_errno("read", path_);
    }
  }

  std::string path_;
  unique_fd fd_;
  std::string head_;
};

/// What two forms of packing have in common: packed bytes at hand, and their end.
class packed_source : public byte_source {
 public:
  packed_source(const std::string& path, std::string_view form, std::unique_ptr<byte_source> source)
      : path_(path), form_(form), from_(std::move(source)), packed_(piece) {}

 protected:
  /// Has bytes in left() unless the file ends.
  result<void> refill() {
    if (!left_.empty() || ended_) return {};
    const auto got = from_->read(packed_);
    if (!got) return std::unexpected(got.error());
    left_ = std::span(packed_).first(*got);
    ended_ = *got == 0;
    return {};
  }
  [[nodiscard]] std::span<char> left() const noexcept { return left_; }
  void take(std::size_t count) noexcept { left_ = left_.subspan(count); }

  [[nodiscard]] std::unexpected<error> damaged(std::string_view why) const {
    return fail(error_code::malformed, fmt::format("{} is no whole {} file: {}", path_, form_, why));
  }

 private:
  std::string path_;
  std::string_view form_;
  std::unique_ptr<byte_source> from_;
  std::vector<char> packed_;
  std::span<char> left_;
  bool ended_ = false;
};

class gzip_source final : public packed_source {
 public:
  gzip_source(const std::string& path, std::unique_ptr<byte_source> source)
      : packed_source(path, "gzip", std::move(source)), started_(::inflateInit2(&stream_, gzip_window) == Z_OK) {}
  gzip_source(const gzip_source&) = delete;
  gzip_source& operator=(const gzip_source&) = delete;
  gzip_source(gzip_source&&) = delete;
  gzip_source& operator=(gzip_source&&) = delete;
  ~gzip_source() override {
    if (started_) ::inflateEnd(&stream_);
  }

  result<std::size_t> read(std::span<char> into) override {
    if (!started_) return fail(error_code::system, "zlib does not start");
    const std::size_t room = std::min(into.size(), piece);
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(room);
    while (stream_.avail_out == room) {
      if (auto ok = refill(); !ok) return std::unexpected(ok.error());
      if (left().empty() && state_ == Z_STREAM_END) break;
      if (state_ == Z_STREAM_END) {
        if (skip_padding(); left().empty()) continue;
        ::inflateReset(&stream_);  // another member
      }
      stream_.next_in = reinterpret_cast<Bytef*>(left().data());
      stream_.avail_in = static_cast<uInt>(left().size());
      state_ = ::inflate(&stream_, Z_NO_FLUSH);
      if (state_ != Z_OK && state_ != Z_STREAM_END) {
        return damaged(stream_.msg != nullptr ? stream_.msg : "it ends too early");
      }
      take(left().size() - stream_.avail_in);
    }
    return room - stream_.avail_out;
  }

 private:
  /// Zeros behind a member fill the last block of a tape or disk.
  void skip_padding() noexcept {
    take(static_cast<std::size_t>(std::ranges::find_if(left(), [](char each) { return each != 0; }) - left().begin()));
  }

  z_stream stream_{};
  bool started_;
  int state_ = Z_OK;
};

class zstd_source final : public packed_source {
 public:
  zstd_source(const std::string& path, std::unique_ptr<byte_source> source)
      : packed_source(path, "zstd", std::move(source)) {}

  result<std::size_t> read(std::span<char> into) override {
    if (!stream_) return fail(error_code::system, "zstd does not start");
    ZSTD_outBuffer out{into.data(), into.size(), 0};
    while (out.pos == 0) {
      if (auto ok = refill(); !ok) return std::unexpected(ok.error());
      const bool ended = left().empty();
      if (ended && needed_ == 0) break;
      ZSTD_inBuffer in{left().data(), left().size(), 0};
      needed_ = ::ZSTD_decompressStream(stream_.get(), &out, &in);
      if (::ZSTD_isError(needed_) != 0) return damaged(::ZSTD_getErrorName(needed_));
      if (ended && out.pos == 0) return damaged("it ends too early");
      take(in.pos);
    }
    return out.pos;
  }

 private:
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream_{::ZSTD_createDStream(), ::ZSTD_freeDStream};
  std::size_t needed_ = 1;  ///< 0: at the end of a frame
};

/// Also a frame to be skipped, which pzstd and seekable files begin with: 50 to 5F 2A 4D 18.
bool is_zstd(std::string_view head) noexcept {
  const bool is_skippable = head.size() == magic_size && (static_cast<unsigned char>(head[0]) & 0xf0U) == 0x50U &&
                            head.ends_with("\x2a\x4d\x18");
  return is_skippable || head.starts_with("\x28\xb5\x2f\xfd");
}

}  // namespace

result<std::unique_ptr<byte_source>> open_packed_file(const std::string& path) {
  unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return fail_errno("read", path);
  auto plain = std::make_unique<plain_source>(path, std::move(fd));
  const auto head = plain->peek();
  if (!head) return std::unexpected(head.error());
  if (head->starts_with("\x1f\x8b")) return std::make_unique<gzip_source>(path, std::move(plain));
  if (is_zstd(*head)) return std::make_unique<zstd_source>(path, std::move(plain));
  const auto packed =
      std::ranges::find_if(unknown_forms, [&](const auto& form) { return head->starts_with(form.magic); });
  if (packed == std::ranges::end(unknown_forms)) return plain;
  return fail(error_code::unsupported,
              fmt::format("{} is packed as {}; gzip and zstd are read, so unpack it first", path, packed->name));
}

result<std::string> read_packed_file(const std::string& path) {
  const auto from = open_packed_file(path);
  if (!from) return std::unexpected(from.error());
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + piece);
    const auto got = (*from)->read(std::span(text).subspan(size));
    if (!got) return std::unexpected(got.error());
    text.resize(size + *got);
    if (*got == 0) return text;
  }
}

}  // namespace cenote
