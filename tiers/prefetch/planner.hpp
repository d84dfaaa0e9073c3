// What is brought up, in which order and for how long: every decision about prefetches, without an actor or a device.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "memory/session_memory.hpp"
#include "tiers/prefetch/commands.hpp"
#include "tiers/prefetch/continuations.hpp"
#include "tiers/prefetch/gate.hpp"
#include "tiers/prefetch/status.hpp"
#include "tiers/prefetch/throughput.hpp"

namespace cenote::prefetch {

struct options {
  memory::prefetch_policy policy = memory::prefetch_policy::timeout;
  nanoseconds base = std::chrono::seconds(1);
  nanoseconds per_ki_token = std::chrono::milliseconds(250);
  std::uint64_t threshold_tokens = 256;    ///< fewer tokens below DRAM are not worth a load
  std::uint64_t instance_bytes = 0;        ///< loaded or being loaded and not yet taken over, an instance; 0: no limit
  std::uint64_t total_bytes = 0;           ///< … of all together; 0: no limit
  std::uint64_t window = 256ULL << 20;     ///< bytes under way at once
  std::uint64_t prefill_tokens_per_s = 0;  ///< of engines that do not say; 0: unknown
  std::uint64_t assumed_tokens_per_s = 0;  ///< where that is unknown, too, and nobody said; 0: nothing is compared
  std::uint64_t read_ahead = 0;            ///< blocks loaded on speculation behind a chain that is all there; 0: none
  nanoseconds limit = std::chrono::seconds(60);  ///< of every prefetch: a device that takes longer is broken
  nanoseconds claim = std::chrono::seconds(10);  ///< how long what came is held for a client that says nothing
};

/// An answer for a session's completion ring.
struct answer {
  std::uint64_t session = 0;
  memory::completion completion;
};

/// Serves prefetches in the order in which they came: chains in prefix order, one load a block however many want it.
/// Time is an argument. Everything it wants of the tier comes out of take_commands(), which is carried out in order; of
/// loads at most one command is open. One thread.
class planner {
 public:
  static constexpr std::size_t max_chain = std::size_t{1} << 16;      ///< blocks; the rest of a longer chain is left
  static constexpr std::size_t max_of_session = std::size_t{1} << 8;  ///< prefetches that are not over
  static constexpr std::size_t max_keys_of_session = 4 * max_chain;   ///< of prefetches that are not answered
  static constexpr std::size_t max_keys = 32 * max_chain;             ///< … of all sessions, and of chains that go on

  explicit planner(options chosen) : options_(chosen) {}

  /// A session asks for a chain, stops a prefetch, or is done with one; in the order of its ring.
  void on_request(request incoming, time_point now);
  /// What became of a command.
  void on_result(const command_result& result, time_point now);
  /// Loads that ended; of others than ours nothing is known.
  void on_loads_finished(std::span<const transfer_outcome> ended, time_point now);
  /// There may be room again for what the tier answered `wait`.
  void retry() noexcept { blocked_ = false; }
  /// The session is closed or its client dead. The tier let go of its blocks already.
  void on_session_closed(std::uint64_t session);
  /// Decides; call after any of the above and at wake_at().
  void plan(time_point now);
  void reload(const options& chosen) noexcept { options_ = chosen; }

  [[nodiscard]] std::vector<command> take_commands() { return std::exchange(commands_, {}); }
  [[nodiscard]] std::vector<answer> take_answers() { return std::exchange(answers_, {}); }
  /// When plan() has to be called at the latest; nothing: only when something happens.
  [[nodiscard]] std::optional<time_point> wake_at(time_point now) const noexcept;
  [[nodiscard]] prefetch::status status(time_point now = {}) const;
  /// Instances of which a prefill rate had to be assumed, for the first time.
  [[nodiscard]] std::vector<std::uint32_t> take_assumed() { return std::exchange(assumed_, {}); }
  [[nodiscard]] std::uint64_t assumed_rate() const noexcept { return options_.assumed_tokens_per_s; }

 private:
  struct prefetch_job {
    std::uint64_t number = 0;
    std::uint64_t session = 0;  ///< 0: speculation, which nobody waits for
    std::uint32_t request = 0;  ///< its number in the session's ring
    std::uint32_t chain = 0;
    std::uint32_t instance = 0;
    std::uint32_t group = 0;
    std::uint64_t stride = 0;
    bool hold = false;
    bool stoppable = false;  ///< best_effort
    key_list keys;
    std::vector<place> places;
    double recompute = 0;  ///< seconds a block; 0: not known, nothing is compared
    time_point deadline{};
    std::size_t prefix = 0;                ///< blocks from the front that are present
    std::size_t next = 0;                  ///< first key that no command named
    std::size_t end = 0;                   ///< first key that is not wanted (any more)
    reason end_reason = reason::complete;  ///< why not
    std::optional<reason> stop_reason;     ///< stopped or cancelled
    std::uint64_t loads_left = 0;          ///< keys in [next, end) that are below
    std::uint64_t shared_with = 0;         ///< an older job with the same first `in_common` keys; 0: none
    std::size_t in_common = 0;
    bool has_loads = false;         ///< something was loaded for it
    bool measures_only = false;     ///< a probe: loads that nobody asked for, to measure the device
    bool waits_for_window = false;  ///< its own loads are the window that measures the device
    time_point measuring_since{};
    time_point since{};            ///< when it was asked for
    std::size_t first_prefix = 0;  ///< `prefix` at that time
    double could_save = 0;         ///< seconds, if all came
    double allowance = 0;          ///< seconds that it may lose
    std::uint64_t charged = 0;     ///< bytes, of both budgets
    bool finishing = false;        ///< the tier counts
    /// When keys come that are under way: bytes that come before and with them. Made anew by note_arrivals().
    std::unordered_map<std::size_t, std::uint64_t> arrivals;
  };
  struct load_in_flight {
    std::uint64_t bytes = 0;
    std::vector<std::pair<std::uint64_t, std::size_t>> wanted_by;  ///< job, key
  };
  /// Answered; its blocks are held for its client.
  struct held_job {
    std::uint64_t session = 0;
    std::uint32_t chain = 0;
    std::uint32_t instance = 0;
    std::uint64_t charged = 0;
    time_point until{};
  };
  /// What is known of an instance. Each has an account of its own: what one says of itself spoils no other's.
  struct engine {
    std::uint64_t rate = 0;   ///< tokens/s as a client said last; 0: nobody did
    bool is_assumed = false;  ///< … and that was told
    loss_account losses;
  };
  enum class issued : std::uint8_t { yes, no_room, over_budget };

  [[nodiscard]] prefetch_job* find(std::uint64_t number) noexcept;
  void begin_job(request incoming, time_point now);
  [[nodiscard]] prefetch_job make_job(request& incoming, time_point now);
  void find_shared(prefetch_job& job) const;
  void read_ahead(const prefetch_job& behind, time_point now);
  void end_speculation();
  void on_cancel(const request& incoming);
  void refuse(const request& incoming, error_code code);

  static void skip_resident(prefetch_job& job) noexcept;
  static void truncate_at(prefetch_job& job, std::size_t key, reason why) noexcept;
  void note_arrivals();
  [[nodiscard]] double rate_for(const request& incoming);
  [[nodiscard]] engine& engine_of(std::uint32_t instance);
  void return_allowance(const prefetch_job& job, double gained);
  void open_account(prefetch_job& job, time_point now);
  void close_account(const prefetch_job& job, std::size_t length, time_point now);
  void compare_with_recompute(prefetch_job& job, std::uint64_t ahead, time_point now);
  void allow_measuring(prefetch_job& job, time_point now);
  void refuse_or_cut(prefetch_job& job, std::size_t end, time_point now);
  void begin_probe(time_point now);
  [[nodiscard]] bool is_measuring(const prefetch_job& job) const noexcept;
  [[nodiscard]] bool becomes_probe(prefetch_job& job, const forecast& speed, time_point now);
  void share_load(load_in_flight& under_way, std::uint64_t number, std::size_t key);
  void share_loads_in_flight(prefetch_job& job);
  void probe_behind(const prefetch_job& job, time_point now);
  [[nodiscard]] static time_point latest_wait_of(const prefetch_job& job) noexcept;
  [[nodiscard]] std::size_t best_end(const prefetch_job& job, std::uint64_t ahead, const forecast& speed,
                                     time_point now) const;
  [[nodiscard]] static bool is_over(prefetch_job& job, time_point now) noexcept;
  void issue_finish(prefetch_job& job);
  issued issue_loads(prefetch_job& job, time_point now);
  [[nodiscard]] std::uint64_t room_for(const prefetch_job& job, time_point now) const;
  [[nodiscard]] std::uint64_t probe_window(std::uint64_t stride) const noexcept;
  [[nodiscard]] std::uint64_t budget_for(const prefetch_job& job) const;
  [[nodiscard]] bool alone_in_budget(const prefetch_job& job) const;
  void on_load_result(const command_result& result, time_point now);
  void on_finish_result(const command_result& result, time_point now);
  void track_load(std::uint64_t token, std::uint64_t number, std::size_t key, time_point now);
  void release_hold(std::uint64_t number);
  void expire(time_point now);
  void refund(std::uint32_t instance, std::uint64_t bytes) noexcept;
  [[nodiscard]] std::size_t open_prefetches_of(std::uint64_t session) const noexcept;
  [[nodiscard]] bool fits_key_limits(const request& incoming) const noexcept;

  options options_;
  std::uint64_t next_job_ = 1;
  std::map<std::uint64_t, prefetch_job> jobs_;               ///< by number, so the oldest first; not answered yet
  std::map<std::uint64_t, held_job> held_;                   ///< by job
  std::map<std::uint64_t, request> gathering_;               ///< session -> chain of which requests are missing
  std::map<std::uint64_t, load_in_flight> loads_in_flight_;  ///< by token: in the order in which the device got them
  std::map<std::uint32_t, std::uint64_t> charged_;           ///< instance -> bytes
  std::uint64_t charged_in_all_ = 0;
  std::optional<command> open_command_;  ///< a load that is not answered yet
  std::uint64_t open_stride_ = 0;
  bool blocked_ = false;  ///< the tier has no room
  time_point blocked_until_{};
  throughput speed_;
  probe_schedule probes_;
  std::map<std::uint32_t, engine> engines_;  ///< by instance
  std::vector<std::uint32_t> assumed_;
  continuations continuations_;
  std::vector<command> commands_;
  std::vector<answer> answers_;
  prefetch::status counts_;
};

}  // namespace cenote::prefetch
