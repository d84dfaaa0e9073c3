// What replayed blocks are called and what stands in them: both derive from the block's id in the trace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cenote::replay {

inline constexpr std::size_t key_width = 16;

/// The key of the block that a trace calls `id`: two words of SplitMix64 over it. Distinct ids have distinct keys.
using block_name = std::array<std::byte, key_width>;
[[nodiscard]] block_name key_of(std::uint64_t id) noexcept;

/// How much of a block that was read is compared with what must stand there.
enum class verify_mode : std::uint32_t {
  none,
  sample,  ///< eight cache lines: the first, the last, and six places that depend on the block
  all,     ///< every byte
};

/// The bytes of a block: 64-bit words a, a + b, a + 2b, … with a and an odd b mixed from the id. Every word depends on
/// block and place, and a block is made and compared as fast as memory is read. Thread-safe.
class content {
 public:
  explicit content(std::uint64_t id) noexcept;

  /// Fills a block; its size is a multiple of 8.
  void fill(std::span<std::byte> block) const noexcept;
  /// The place of the first wrong 8 bytes among those that `mode` looks at, if there are any.
  [[nodiscard]] std::optional<std::size_t> first_wrong(std::span<const std::byte> block,
                                                       verify_mode mode) const noexcept;

 private:
  [[nodiscard]] std::optional<std::size_t> wrong_in(std::span<const std::byte> block, std::size_t first,
                                                    std::size_t last) const noexcept;

  std::uint64_t first_;
  std::uint64_t step_;
};

}  // namespace cenote::replay
