// The memory of an index.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace cenote::manager {

/// Memory that is given back all at once, when it dies: what readers use is never freed under them. Pieces grow with
/// what there is, up to whole huge pages, so that a small index costs little and a large one few entries of the
/// processor's table of pages.
class line_arena {
 public:
  line_arena() = default;
  line_arena(const line_arena&) = delete;
  line_arena& operator=(const line_arena&) = delete;
  line_arena(line_arena&&) = delete;
  line_arena& operator=(line_arena&&) = delete;
  ~line_arena() = default;

  /// Value-initialized elements on a cache line of their own. Throws std::bad_alloc.
  template <class T>
  [[nodiscard]] std::span<T> make(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= line);
    T* const elements = static_cast<T*>(allocate((count * sizeof(T) + line - 1) / line * line));
    std::uninitialized_value_construct_n(elements, count);
    return {elements, count};
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t line = 64;
  static constexpr std::size_t least_piece = 4096;

  struct arena_piece_deleter {
    std::size_t bytes = 0;

    void operator()(std::byte* memory) const noexcept;
  };
  using arena_piece = std::unique_ptr<std::byte, arena_piece_deleter>;

  [[nodiscard]] void* allocate(std::size_t bytes);
  [[nodiscard]] static arena_piece make_piece(std::size_t bytes);

  std::vector<arena_piece> pieces_{};
  std::byte* place_ = nullptr;  ///< in the last piece but those that were asked for whole
  std::size_t rest_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace cenote::manager
