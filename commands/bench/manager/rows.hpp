// The rows of the manager's bench, and their shared parts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/bench/manager/private_manager.hpp"
#include "commands/bench/manager/rival_program.hpp"
#include "commands/bench/private_server.hpp"
#include "commands/bench/report.hpp"
#include "commands/bench/support.hpp"

namespace cenote::bench {

inline constexpr unsigned warm_up_rounds = 50;  ///< whose times are dropped
inline constexpr double microseconds = 1e6;

/// A row whose times another program can be beside.
inline constexpr std::string_view prefix_row = "prefix of 1,000 keys with addresses, one spec";

/// Takes figures of an index of one size. With a program beside they wait for its last line; its median is the limit of
/// the row of its name, or, where that row has a limit, of a further one.
class row_printer {
 public:
  /// `out` outlives it.
  row_printer(report& out, std::uint64_t keys) : out_(out), keys_(keys) {}

  [[nodiscard]] result<void> start_rival(const std::string& program);
  /// The name without the size of the index.
  void add(figure measured);
  void add_time(std::string_view name, const samples& times, bound promise);
  void add_time(std::string_view name, const samples& times, const samples& limit, bound promise);
  /// A ratio of rates.
  void add_share(std::string_view name, const samples& shares, double least);
  /// Gives the program beside its turn, now and then.
  [[nodiscard]] result<void> end_round(unsigned round);
  [[nodiscard]] result<void> finish();

 private:
  void print(figure measured);
  void print_with_rival(figure measured);

  report& out_;
  std::uint64_t keys_;
  std::optional<rival_program> rival_;
  std::vector<figure> waiting_;
};

struct row_context {
  private_manager& manager;
  row_printer& out;
  const scratch_directory& folder;
  const private_server* redis = nullptr;  ///< null: none is installed
  unsigned rounds = 0;
  std::uint64_t chains = 0;  ///< of blocks of one spec
};

/// One of several that are timed in turn.
struct timed_side {
  std::function<result<void>()> run{};
  samples times{};
};

/// Times all sides in each round, each time another one first; what `prepare` does is not timed.
[[nodiscard]] result<void> alternate(const row_context& context, const std::function<void(unsigned round)>& prepare,
                                     std::span<timed_side> sides);

/// Lookups as messages and as JSON.
[[nodiscard]] result<void> run_lookup_rows(const row_context& context);
/// Of a prefix, as messages that are read already, answers as bytes of gRPC.
[[nodiscard]] result<samples> time_prefixes(const row_context& context, chain_kind kind);
/// Lookups over gRPC and HTTP on loopback.
[[nodiscard]] result<void> run_network_rows(const row_context& context);
[[nodiscard]] result<void> run_session_rows(const row_context& context);
[[nodiscard]] result<void> run_reader_rows(const row_context& context);
/// The last ones on a journal: they evict.
[[nodiscard]] result<void> run_reclaim_rows(const row_context& context);
[[nodiscard]] result<void> run_restart_rows(const row_context& context);

}  // namespace cenote::bench
