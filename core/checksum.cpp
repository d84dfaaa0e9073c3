#include "core/checksum.hpp"

#include <array>

#include "core/checksum_kernels.hpp"
#include "core/machine_choice.hpp"

namespace cenote {

namespace {

class variant_table {
 public:
  variant_table() noexcept {
#if defined(__x86_64__)
    add({"SSE2", 1, cenote_checksum_plain, cenote_checksum_add_plain});
    if (__builtin_cpu_supports("avx2")) add({"AVX2", 2, cenote_checksum_avx2, cenote_checksum_add_avx2});
    if (__builtin_cpu_supports("avx512f")) add({"AVX-512", 3, cenote_checksum_avx512, cenote_checksum_add_avx512});
#elif defined(__aarch64__)
    add({"NEON", 4, cenote_checksum_plain, cenote_checksum_add_plain});
#else
    add({"baseline", 1, cenote_checksum_plain, cenote_checksum_add_plain});
#endif
  }

  [[nodiscard]] std::span<const checksum_variant> all() const noexcept { return std::span(all_).first(count_); }
  /// The widest for a number that is not there.
  [[nodiscard]] const checksum_variant& find(std::uint8_t number) const noexcept {
    const std::size_t order = number < order_.size() ? order_[number] : 0;
    return all_[(order != 0 ? order : count_) - 1];
  }

 private:
  void add(const checksum_variant& variant) noexcept {
    all_[count_++] = variant;
    order_[variant.number] = static_cast<std::uint8_t>(count_);
  }

  std::array<checksum_variant, 3> all_{};
  std::array<std::uint8_t, 8> order_{};  ///< by number, from 1 on; 0: not there
  std::size_t count_ = 0;
};

const variant_table& variants() noexcept {
  static const variant_table table;
  return table;
}

}  // namespace

std::span<const checksum_variant> checksum_variants() noexcept {
  return variants().all();
}

const checksum_variant& checksum_in_use() noexcept {
  return variants().find(checksum_in(word_in_use(checksum_word)));
}

std::string_view checksum_instructions() noexcept {
  return checksum_in_use().name;
}

std::uint64_t checksum_of(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  return checksum_in_use().take(bytes.data(), bytes.size(), seed);
}

}  // namespace cenote
