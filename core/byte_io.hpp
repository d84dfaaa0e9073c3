// Bounded little-endian encoding for control messages and registry entries.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cenote {

static_assert(std::endian::native == std::endian::little, "messages and segments are little-endian");

/// Appends integers, strings and byte runs to a growing buffer. Not thread-safe.
class byte_writer {
 public:
  template <std::integral T>
  void put(T value) {
    const auto old = bytes_.size();
    bytes_.resize(old + sizeof(T));
    std::memcpy(bytes_.data() + old, &value, sizeof(T));
  }
  /// The bytes alone.
  void put_raw(std::span<const std::byte> run) { bytes_.insert(bytes_.end(), run.begin(), run.end()); }
  /// A 32-bit length, then the bytes.
  void put_bytes(std::span<const std::byte> run) {
    put(static_cast<std::uint32_t>(run.size()));
    put_raw(run);
  }
  void put_text(std::string_view text) { put_bytes(std::as_bytes(std::span(text))); }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() && noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what byte_writer wrote. Reading past the end yields zeros and clears ok(): check it once, at the end.
class byte_reader {
 public:
  explicit byte_reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  template <std::integral T>
  [[nodiscard]] T get() noexcept {
    T value{};
    if (const auto run = take(sizeof(T)); run.size() == sizeof(T)) std::memcpy(&value, run.data(), sizeof(T));
    return value;
  }
  template <std::size_t Size>
  [[nodiscard]] std::array<std::byte, Size> get_array() noexcept {
    std::array<std::byte, Size> bytes{};
    if (const auto run = take(Size); run.size() == Size) std::memcpy(bytes.data(), run.data(), Size);
    return bytes;
  }
  [[nodiscard]] std::span<const std::byte> get_bytes() noexcept { return take(get<std::uint32_t>()); }
  /// `n` bytes, or none if there are not as many.
  [[nodiscard]] std::span<const std::byte> get_run(std::size_t n) noexcept { return take(n); }
  [[nodiscard]] std::string get_text() {
    const auto run = get_bytes();
    std::string text(run.size(), '\0');
    if (!run.empty()) std::memcpy(text.data(), run.data(), run.size());
    return text;
  }

  /// False once anything was read past the end.
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> take(std::size_t n) noexcept {
    if (n > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto run = rest_.first(n);
    rest_ = rest_.subspan(n);
    return run;
  }

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace cenote
