// One thread of an engine: a request at a time, from the lookup to the put.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/session.hpp"
#include "commands/replay/shared_plan.hpp"
#include "core/error.hpp"

namespace cenote::replay {

/// A session, and how often its node had been killed when it began.
struct attached_session {
  std::shared_ptr<client::session> session;
  std::uint32_t kills = 0;
  std::shared_ptr<client::session> host{};  ///< of the same instance in DRAM, where `session` is on a device; else null
};

/// Not thread-safe; sessions are shared between workers.
class engine_worker {
 public:
  /// `corrupt_every`: every so many blocks that it makes one byte is wrong, so that tests see it found; 0: never.
  engine_worker(const shared_plan& plan, std::uint32_t engine, std::uint32_t number, std::uint64_t corrupt_every);

  /// Match, prefetch, load and verify what is there, make and put what is not. A failure that leaves the session usable
  /// is counted; others are returned. All are, and are counted apart, where the session's node was killed.
  [[nodiscard]] result<void> serve(const planned_request& request, const attached_session& at);
  /// The session's node was killed since it began.
  [[nodiscard]] bool lost_node(const attached_session& at) const noexcept { return plan_.kills(node_) != at.kills; }

 private:
  using clock = std::chrono::steady_clock;
  struct found {
    std::size_t device = 0;             ///< leading blocks on the device when the request came
    std::size_t upper = 0;              ///< … there or in DRAM: at least `device`
    std::size_t here = 0;               ///< … or on disks: at least `upper`
    std::size_t reached = 0;            ///< blocks that were asked for: at least `here`
    std::size_t loaded = 0;             ///< blocks read
    std::chrono::nanoseconds looked{};  ///< what each step took
    std::chrono::nanoseconds waited{};
    std::chrono::nanoseconds read{};
    std::optional<client::prefetch_ticket> ticket;
  };

  [[nodiscard]] key_batch keys(std::size_t first, std::size_t count) const noexcept;
  [[nodiscard]] result<void> match(found& hits);
  [[nodiscard]] result<void> match_below(found& hits);
  [[nodiscard]] result<std::size_t> lead_from(std::size_t first, bool with_disks);
  [[nodiscard]] result<void> bring_up(found& hits);
  [[nodiscard]] result<void> load(found& hits);
  [[nodiscard]] result<void> load_from_device(found& hits);
  void verify_copies(std::size_t first, std::size_t count);
  void verify_blocks(std::span<const client::held_block> held, std::size_t first);
  void verify(std::span<const std::byte> block, std::size_t place);
  void make(std::span<std::byte> block, std::size_t place);
  [[nodiscard]] result<void> store(std::size_t first);
  [[nodiscard]] result<void> put_copied(std::size_t first, std::size_t count);
  [[nodiscard]] result<void> put_in_place(std::size_t first, std::size_t count);
  [[nodiscard]] std::span<std::byte> buffer(std::size_t i) noexcept;
  [[nodiscard]] std::size_t in_first_tier(const found& hits) const noexcept;
  void count_time(const planned_request& request, const found& hits);
  void count_hits(const planned_request& request, const found& hits, clock::time_point begun);

  const shared_plan& plan_;
  const run_settings& settings_;
  engine_state& engine_;
  tally& done_;
  std::uint32_t node_;
  client::session* session_ = nullptr;
  client::session* host_ = nullptr;  ///< null: session_ is in DRAM itself
  std::uint64_t corrupt_every_;
  std::uint64_t made_ = 0;
  std::size_t chunk_;   ///< blocks handled at a time
  std::size_t window_;  ///< … read from a device: mostly a whole chain, so that the node sees one use of it
  std::vector<std::byte> staging_;  ///< as many blocks of the engine's own
  std::span<const std::uint64_t> ids_;
  std::vector<block_name> names_;
  std::vector<client::held_block> held_;
  std::vector<client::reserved_block> reserved_;
  std::chrono::nanoseconds put_time_{};
};

/// False: no later call of the session will work either.
[[nodiscard]] bool leaves_session_usable(error_code code) noexcept;

}  // namespace cenote::replay
