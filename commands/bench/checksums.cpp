// What a checksum costs, by each set of instructions that the processor has.
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "commands/bench/support.hpp"
#include "core/checksum.hpp"

namespace cenote::bench::checksums_bench {

namespace {

constexpr std::uint64_t round_bytes = 64 * MiB;  // read in one sample: the clock costs nothing beside it
constexpr std::uint64_t all_bytes = 256 * MiB;   // gone through in turn, far more than any cache
constexpr unsigned default_rounds = 20;

struct bench_case {
  std::uint64_t block_bytes;
  bool from_memory;  ///< blocks not used for long; else one, again and again
};
constexpr std::array cases{bench_case{4 * KiB, false}, bench_case{256 * KiB, false}, bench_case{256 * KiB, true},
                           bench_case{2 * MiB, true}};

/// Goes through as many blocks as make up a sample, and calls `visit` with the byte where one starts.
class walk {
 public:
  explicit walk(const bench_case& row) : case_(row) {}

  template <class Each>
  double seconds(Each visit) {
    const stopwatch watch;
    for (std::uint64_t done = 0; done < round_bytes; done += case_.block_bytes) {
      visit(offset_);
      if (case_.from_memory) offset_ = (offset_ + case_.block_bytes) % all_bytes;
    }
    return watch.seconds();
  }

 private:
  const bench_case& case_;
  std::uint64_t offset_ = 0;
};

std::string name_of(const checksum_variant& variant, const bench_case& row) {
  const bool used = variant.name == checksum_instructions();
  return fmt::format("{}, {} KiB from {}{}", variant.name, row.block_bytes / KiB,
                     row.from_memory ? "memory" : "the cache", used ? " (used)" : "");
}

void measure(const checksum_variant& variant, const bench_case& row, unsigned rounds, memory_pieces& memory,
             report& out) {
  std::byte* const from = memory.piece(0);
  std::byte* const to = memory.piece(1);
  walk figure_at(row);
  walk limit_at(row);
  samples figure;
  samples limit;
  volatile std::uint64_t kept = 0;  // or nothing would be computed
  for (unsigned round = 0; round <= rounds; ++round) {
    const double taken =
        figure_at.seconds([&](std::uint64_t at) { kept = kept ^ variant.take(from + at, row.block_bytes, 0); });
    const double copied = limit_at.seconds([&](std::uint64_t at) {
      std::memcpy(to + at, from + at, row.block_bytes);
      kept = std::to_integer<std::uint64_t>(to[at]);
    });
    if (round == 0) continue;  // only warms up
    figure.add(taken);
    limit.add(copied);
  }
  constexpr double gib = static_cast<double>(round_bytes) / static_cast<double>(GiB);
  out.add(rate_figure("checksums", name_of(variant, row), figure, limit, gib, "GiB/s"));
}

}  // namespace

result<void> run(const options& options, report& out) {
  memory_pieces memory(2, all_bytes);
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  for (const bench_case& of : cases) {
    for (const checksum_variant& variant : checksum_variants()) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      measure(variant, of, rounds, memory, out);
    }
  }
  return {};
}

}  // namespace cenote::bench::checksums_bench
