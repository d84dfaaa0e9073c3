#include "core/copy_measurement.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "core/checksum.hpp"
#include "core/copy_routines.hpp"
#include "core/machine.hpp"
#include "core/running_checksum.hpp"

namespace cenote {

namespace {

constexpr std::size_t side_bytes = std::size_t{8} << 20;
constexpr std::size_t line_bytes = 64;
constexpr unsigned most_attempts = 4;  // of a pass that is preempted
constexpr unsigned size_passes = 2;
constexpr double worth_another_pass = 1.25;  // of the fastest candidate's time; a slower one is not chosen

bool offers_huge_shared_pages() {
  const auto line = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled").value_or("");
  return line.find("[advise]") != std::string::npos || line.find("[always]") != std::string::npos ||
         line.find("[within_size]") != std::string::npos || line.find("[force]") != std::string::npos;
}

void* map_memory(std::size_t bytes, int flags) noexcept {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}

#if !defined(__x86_64__) && !defined(__aarch64__)
/// Reads as much as the caches of a core hold.
void read_other_memory() noexcept {
  static const std::vector<std::byte> other(std::size_t{64} << 20, std::byte{1});
  volatile std::byte byte{};
  for (std::size_t i = 0; i < other.size(); i += line_bytes) byte = other[i];
}
#endif

#if defined(__x86_64__)
bool can_flush_out_of_order() noexcept {
  constexpr unsigned clflushopt_bit = 1U << 23U;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & clflushopt_bit) != 0;
}

/// Flushes lines that do not wait for each other: twenty times as fast.
__attribute__((target("clflushopt"))) void flush_out_of_order(std::span<const std::byte> memory) noexcept {
  for (std::size_t i = 0; i < memory.size(); i += line_bytes) _mm_clflushopt(const_cast<std::byte*>(memory.data() + i));
}

void flush_in_order(std::span<const std::byte> memory) noexcept {
  for (std::size_t i = 0; i < memory.size(); i += line_bytes) _mm_clflush(memory.data() + i);
}
#endif

/// Times that the kernel took the processor from this thread.
long preemptions() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

std::vector<std::uint8_t> candidates_of(copy_case kind) {
  std::vector<std::uint8_t> all;
  if (kind == copy_case::checksum) {
    for (const checksum_variant& each : checksum_variants()) all.push_back(each.number);
  } else {
    for (const copy_routine& each : copy_routines()) all.push_back(each.number);
  }
  return all;
}

}  // namespace

// ---------------------------------------------------------------------------------------------- memory

result<measured_memory> measured_memory::make(kind pages, std::size_t bytes) {
  void* data = MAP_FAILED;
  if (pages == kind::shared_huge) {
    data = map_memory(bytes, MAP_SHARED | MAP_HUGETLB | MAP_POPULATE);
    if (data == MAP_FAILED && !offers_huge_shared_pages()) return fail_errno("mmap", "huge pages");
  }
  if (data == MAP_FAILED) data = map_memory(bytes, pages == kind::process ? MAP_PRIVATE : MAP_SHARED);
  if (data == MAP_FAILED) return fail_errno("mmap", "memory to measure copies on");
  measured_memory made(static_cast<std::byte*>(data), bytes);
  if (pages == kind::shared_huge) ::madvise(data, bytes, MADV_HUGEPAGE);
  if (pages == kind::shared_small) ::madvise(data, bytes, MADV_NOHUGEPAGE);
  std::memset(data, 1, bytes);
  return made;
}

measured_memory::measured_memory(measured_memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

measured_memory& measured_memory::operator=(measured_memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

measured_memory::~measured_memory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void evict(std::span<const std::byte> memory) noexcept {
#if defined(__x86_64__)
  static const auto flush = can_flush_out_of_order() ? flush_out_of_order : flush_in_order;
  flush(memory);
  _mm_mfence();
#elif defined(__aarch64__)
  for (std::size_t i = 0; i < memory.size(); i += line_bytes)
    asm volatile("dc civac, %0" : : "r"(memory.data() + i) : "memory");
  asm volatile("dsb ish" : : : "memory");
#else
  static_cast<void>(memory);
  read_other_memory();
#endif
}

// ---------------------------------------------------------------------------------------------- measuring

copy_measurement::copy_measurement(measured_memory small, measured_memory process,
                                   std::optional<measured_memory> huge) noexcept
    : small_(std::move(small)), process_(std::move(process)), huge_(std::move(huge)) {}

result<copy_measurement> copy_measurement::make() {
  auto small = measured_memory::make(measured_memory::kind::shared_small, side_bytes);
  if (!small) return std::unexpected(small.error());
  auto process = measured_memory::make(measured_memory::kind::process, side_bytes);
  if (!process) return std::unexpected(process.error());
  auto huge = measured_memory::make(measured_memory::kind::shared_huge, side_bytes);
  return copy_measurement(std::move(*small), std::move(*process),
                          huge ? std::optional(std::move(*huge)) : std::nullopt);
}

bool copy_measurement::has(copy_case kind) const noexcept {
  return huge_.has_value() || (kind != copy_case::read_huge && kind != copy_case::write_huge);
}

copy_measurement::sides copy_measurement::sides_of(copy_case kind) const noexcept {
  switch (kind) {
    case copy_case::read: return {small_.bytes(), process_.bytes()};
    case copy_case::read_huge: return {huge_->bytes(), process_.bytes()};
    case copy_case::write_huge: return {process_.bytes(), huge_->bytes()};
    case copy_case::write:
    case copy_case::checksum:
    case copy_case::hashed_copy: break;
  }
  return {process_.bytes(), small_.bytes()};
}

copy_measurement::sides copy_measurement::next_piece(const sides& whole) noexcept {
  // Evicts all of both sides at once, so that few translations of a piece are cached when it is measured.
  if (next_ + piece_bytes > side_bytes) {
    evict(whole.source);
    evict(whole.target);
    next_ = 0;
  }
  const std::size_t offset = std::exchange(next_, next_ + piece_bytes);
  return {whole.source.subspan(offset, piece_bytes), whole.target.subspan(offset, piece_bytes)};
}

double copy_measurement::seconds_of(copy_case kind, std::uint8_t candidate, std::size_t call_bytes) {
  double seconds = 0;
  for (unsigned attempt = 0; attempt < most_attempts; ++attempt) {
    const long before = preemptions();
    seconds = seconds_of_pass(kind, candidate, call_bytes);
    if (preemptions() == before) break;
  }
  return seconds;
}

double copy_measurement::seconds_of_pass(copy_case kind, std::uint8_t candidate, std::size_t call_bytes) {
  if (kind != std::exchange(evicted_for_, kind)) next_ = side_bytes;
  const sides piece = next_piece(sides_of(kind));
  const auto sum = std::ranges::find(checksum_variants(), candidate, &checksum_variant::number);
  const copy_function run = copy_routine_of(candidate).run;
  running_checksum running;
  volatile std::uint64_t sums = 0;  // or nothing would be computed
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t offset = 0; offset < piece_bytes; offset += call_bytes) {
    const auto source = std::span<const std::byte>(piece.source).subspan(offset, call_bytes);
    std::byte* const target = piece.target.data() + offset;
    if (kind == copy_case::checksum) {
      sums = sums ^ sum->take(source.data(), source.size(), 0);
    } else if (kind == copy_case::hashed_copy) {
      running.copy_by(run, target, source);
    } else {
      run(target, source.data(), source.size());
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<candidate_rate> copy_measurement::rates_of(copy_case kind, unsigned passes) {
  if (!has(kind)) return {};
  next_ = side_bytes;
  const std::vector<std::uint8_t> candidates = candidates_of(kind);
  std::vector<double> fastest(candidates.size(), std::numeric_limits<double>::infinity());
  double best = std::numeric_limits<double>::infinity();
  for (unsigned pass = 0; pass < passes; ++pass) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const bool is_hopeless = pass != 0 && fastest[i] > worth_another_pass * best;
      if (is_hopeless) continue;
      fastest[i] = std::min(fastest[i], seconds_of(kind, candidates[i], piece_bytes));
    }
    best = *std::ranges::min_element(fastest);
  }
  std::vector<candidate_rate> rates;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    rates.push_back({candidates[i], static_cast<double>(piece_bytes) / std::max(fastest[i], 1e-9)});
  return rates;
}

std::vector<size_rate> copy_measurement::sizes_of(copy_case kind, std::uint8_t routine) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<size_rate> rates;
  if (!has(kind)) return rates;
  next_ = side_bytes;
  for (const std::uint32_t bytes : measured_sizes) {
    std::array<double, 2> fastest = {infinity, infinity};
    for (unsigned pass = 0; pass < size_passes; ++pass) {
      fastest[0] = std::min(fastest[0], seconds_of(kind, routine, bytes));
      fastest[1] = std::min(fastest[1], seconds_of(kind, memcpy_number, bytes));
    }
    const auto rate = [](double seconds) { return static_cast<double>(piece_bytes) / std::max(seconds, 1e-9); };
    rates.push_back({bytes, rate(fastest[0]), rate(fastest[1])});
  }
  return rates;
}

result<bool> measure_round(machine_decisions& decisions) {
  auto measurement = copy_measurement::make();
  if (!measurement) return std::unexpected(measurement.error());
  bool has_changed = false;
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    auto rates = measurement->rates_of(kind);
    if (rates.empty()) continue;
    has_changed |= decisions.judge(kind, std::move(rates));
    const bool has_sizes = kind != copy_case::checksum && kind != copy_case::hashed_copy;
    if (has_sizes)
      has_changed |= decisions.judge_sizes(kind, measurement->sizes_of(kind, decisions.decision_of(kind).number));
  }
  return has_changed;
}

}  // namespace cenote
