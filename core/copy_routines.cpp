#include "core/copy_routines.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/copy_kernels.hpp"

namespace cenote {

namespace {

// Each set of instructions has sixteen numbers, in the order of its table.
constexpr std::uint8_t rep_movsb_number = 2;
constexpr std::uint8_t avx2_numbers = 16;
constexpr std::uint8_t avx512_numbers = 32;
constexpr std::uint8_t neon_numbers = 48;
constexpr std::size_t numbers = 64;

void copy_by_memcpy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  std::memcpy(target, source, bytes);
}

#if defined(__x86_64__)
/// The stores may pass each other, but no later store passes them.
void copy_by_rep_movsb(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes) : : "memory");
}
#endif

std::string name_of(std::string_view instructions, const cenote_streaming_copy& copy) {
  std::string name(instructions);
  name += copy.pages == 1 ? ", 1 page" : ", " + std::to_string(copy.pages) + " pages";
  switch (copy.fetch) {
    case cenote_fetch::none: break;
    case cenote_fetch::next_pages: name += ", next fetched"; break;
    case cenote_fetch::lines_ahead: name += ", lines fetched"; break;
  }
  return name;
}

class routine_table {
 public:
  routine_table() {
    add({"memcpy", memcpy_number, copy_by_memcpy});
#if defined(__x86_64__)
    add({"rep movsb", rep_movsb_number, copy_by_rep_movsb});
    if (__builtin_cpu_supports("avx2")) add("AVX2", avx2_numbers, cenote_copies_avx2());
    if (__builtin_cpu_supports("avx512f")) add("AVX-512", avx512_numbers, cenote_copies_avx512());
#elif defined(__aarch64__)
    add("NEON", neon_numbers, cenote_copies_neon());
#endif
  }

  [[nodiscard]] std::span<const copy_routine> all() const noexcept { return all_; }
  [[nodiscard]] const copy_routine& find(std::uint8_t number) const noexcept {
    return all_[number < numbers ? places_[number] : 0];
  }

 private:
  void add(copy_routine routine) {
    places_[routine.number] = static_cast<std::uint8_t>(all_.size());
    all_.push_back(std::move(routine));
  }
  void add(std::string_view instructions, std::uint8_t first, const cenote_streaming_copy* table) {
    for (const cenote_streaming_copy& copy : std::span(table, cenote_streaming_copies))
      add({name_of(instructions, copy), first++, copy.run});
  }

  std::vector<copy_routine> all_;
  std::array<std::uint8_t, numbers> places_{};  ///< by number; memcpy's for numbers without a routine
};

const routine_table& routines() noexcept {
  static const routine_table table;
  return table;
}

}  // namespace

std::span<const copy_routine> copy_routines() noexcept {
  return routines().all();
}

const copy_routine& copy_routine_of(std::uint8_t number) noexcept {
  return routines().find(number);
}

}  // namespace cenote
