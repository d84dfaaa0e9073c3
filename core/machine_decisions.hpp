// Decides by which routines this machine copies and sums, from the measured rates of all candidates.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/machine_choice.hpp"
#include "core/timed_choice.hpp"

namespace cenote {

/// Kinds of work that have a decision each. The numbers are part of the file format.
enum class copy_case : std::uint8_t {
  read = 0,        ///< out of blocks on pages of 4 KiB
  write = 1,       ///< into blocks on pages of 4 KiB
  read_huge = 2,   ///< out of blocks on huge pages
  write_huge = 3,  ///< into blocks on huge pages
  checksum = 4,    ///< sums of bytes in memory
  hashed_copy = 5  ///< bytes in memory that are summed and copied into blocks, a piece at a time
};
inline constexpr std::size_t copy_case_count = 6;
enum class page_kind : std::uint8_t { small, huge };

[[nodiscard]] std::string_view name_of(copy_case kind) noexcept;

/// Name of a candidate, a copy_routine ("AVX2, 4 pages") or, for `checksum`, a checksum_variant ("AVX2"). For a number
/// that is not there "memcpy", or the widest variant.
[[nodiscard]] std::string name_of_candidate(copy_case kind, std::uint8_t number);

/// Rate of a candidate: of a copy_routine, or, for `checksum`, of a checksum_variant.
struct candidate_rate {
  std::uint8_t number = 0;
  double bytes_per_s = 0;
  bool operator==(const candidate_rate&) const = default;
};

/// Rates of copies of one size: by the routine for large ones, and by memcpy. Bytes/s.
struct size_rate {
  std::uint32_t bytes = 0;
  double routine_rate = 0;
  double memcpy_rate = 0;
};

/// Sizes of copies among which the smallest one is found for which a routine pays.
inline constexpr std::array<std::uint32_t, 5> measured_sizes = {32U << 10, 64U << 10, 128U << 10, 256U << 10,
                                                                512U << 10};

/// The decision of a case and the rates behind it.
struct copy_decision {
  std::uint8_t number = 0;                                              ///< 0: not measured
  std::uint32_t least_bytes = 0;                                        ///< smaller copies are memcpy's
  std::vector<candidate_rate> rates;                                    ///< of the latest round
  [[nodiscard]] double rate_of(std::uint8_t candidate) const noexcept;  ///< bytes/s; 0: not measured
  [[nodiscard]] double best_rate() const noexcept;
};

/// The decisions of one machine; timed_choice describes when one changes. Copyable; not thread-safe.
class machine_decisions {
 public:
  /// Judges a round of measurements of a case. Returns whether its choice changed.
  bool judge(copy_case kind, std::vector<candidate_rate> rates);
  /// Judges a round of `measured_sizes` of the chosen routine. Returns whether the least size changed.
  bool judge_sizes(copy_case kind, std::span<const size_rate> rates);

  [[nodiscard]] copy_decision decision_of(copy_case kind) const;
  /// The choice of a process whose blocks lie on such pages; where huge ones were not measured, that of small ones.
  [[nodiscard]] machine_choice choice(page_kind pages) const;
  /// Whether any case has a choice.
  [[nodiscard]] bool is_measured() const noexcept;
  /// Whether another candidate won the latest round of some case.
  [[nodiscard]] bool is_in_doubt() const noexcept;

 private:
  struct case_state {
    timed_choice routine;  ///< a candidate's number
    timed_choice least;    ///< an index of `measured_sizes`, or their count: the routine is never used
    std::vector<candidate_rate> rates;
  };
  friend std::vector<std::byte> encode(const machine_decisions& decisions, std::string_view machine);
  friend result<machine_decisions> decode_decisions(std::span<const std::byte> bytes, std::string_view machine);

  [[nodiscard]] const case_state& state_of(copy_case kind) const noexcept {
    return cases_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] case_state& state_of(copy_case kind) noexcept { return cases_[static_cast<std::size_t>(kind)]; }

  std::array<case_state, copy_case_count> cases_;
};

/// Identity of the subject of measurements: the processor's model, the kernel, and the candidates of this build.
[[nodiscard]] std::string machine_identity(const std::filesystem::path& root = "/");

/// Encodes a file of decisions: magic, version, the machine, the cases, and a checksum of all that.
[[nodiscard]] std::vector<std::byte> encode(const machine_decisions& decisions, std::string_view machine);
/// Decodes it. Errors: malformed; unsupported: another version or machine.
[[nodiscard]] result<machine_decisions> decode_decisions(std::span<const std::byte> bytes, std::string_view machine);

/// Path of the file in a node's runtime directory.
[[nodiscard]] std::filesystem::path decisions_file(const std::filesystem::path& runtime_dir);
/// Reads the file. Errors: those of decode_decisions(); system.
[[nodiscard]] result<machine_decisions> load_decisions(const std::filesystem::path& file, std::string_view machine);
/// Replaces the file in one step. Errors: system.
[[nodiscard]] result<void> save_decisions(const std::filesystem::path& file, const machine_decisions& decisions,
                                          std::string_view machine);

}  // namespace cenote
