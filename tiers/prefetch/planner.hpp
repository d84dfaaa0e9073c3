// The prefetch scheduler: which blocks are loaded from lower tiers, in which order, and until when. A plain object
// without actor, device or clock.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "memory/prefetch_outcome.hpp"
#include "memory/session_memory.hpp"
#include "tiers/prefetch/commands.hpp"
#include "tiers/prefetch/continuations.hpp"
#include "tiers/prefetch/gate.hpp"
#include "tiers/prefetch/inquiry.hpp"
#include "tiers/prefetch/load_turns.hpp"
#include "tiers/prefetch/lookups.hpp"
#include "tiers/prefetch/status.hpp"
#include "tiers/prefetch/throughput.hpp"

namespace cenote::prefetch {

struct options {
  memory::prefetch_policy policy = memory::prefetch_policy::timeout;
  nanoseconds base = std::chrono::seconds(1);
  nanoseconds per_ki_token = std::chrono::milliseconds(250);
  std::uint64_t threshold_tokens = 256;    ///< fewer tokens in lower tiers are not worth a load
  std::uint64_t instance_bytes = 0;        ///< budget of one instance: loading, or loaded and held; 0: no limit
  std::uint64_t total_bytes = 0;           ///< … of all instances together; 0: no limit
  std::uint64_t window = 256ULL << 20;     ///< bytes of loads in flight at a time from a tier below, where …
  std::vector<std::uint64_t> windows{};    ///< … does not say another number for it
  nanoseconds slow_load{};                 ///< a prefetch with loads that takes as long is logged; 0: none is
  std::uint64_t prefill_tokens_per_s = 0;  ///< of engines whose clients do not say it; 0: unknown
  std::uint64_t assumed_tokens_per_s = 0;  ///< where nobody says it; 0: loading is not compared with recomputing
  std::uint64_t read_ahead = 0;            ///< blocks to load speculatively behind a chain that is complete; 0: none
  nanoseconds limit = std::chrono::seconds(60);  ///< the longest that any prefetch takes
  nanoseconds claim =
      std::chrono::seconds(10);  ///< how long loaded blocks are held for a client that does not drop them
  /// How long a tier below without hints may take to say what it has.
  nanoseconds lookup_timeout = std::chrono::milliseconds(50);
};

/// Serves prefetches in the order in which they came, each chain in prefix order; a block that several prefetches want
/// is loaded once. The caller passes the time, and has the block tier carry out take_commands() in their order. Each
/// tier below is a source of its own, measured apart and loaded from beside the others; of each at most one load
/// command is unanswered at a time. Not thread-safe.
class planner {
 public:
  static constexpr std::size_t max_chain = std::size_t{1} << 16;  ///< blocks; the rest of a longer chain is left
  static constexpr std::size_t max_session_prefetches = std::size_t{1} << 8;  ///< that are not over
  static constexpr std::size_t max_session_keys = 4 * max_chain;  ///< of one session's prefetches that are not answered
  /// … of all sessions, unfinished requests included
  static constexpr std::size_t max_keys = total_of(node_bound::prefetch_keys);

  explicit planner(options chosen) : options_(std::move(chosen)) {}

  /// A session asks for a chain, stops a prefetch, or is done with one; in the order of its ring.
  void on_request(request incoming, time_point now);
  /// What became of a command.
  void on_result(const command_result& result, time_point now);
  /// Loads that ended. Tokens that the planner does not know are ignored.
  void on_loads_finished(std::span<const transfer_outcome> ended, time_point now);
  /// What a tier below has of the keys of a question, in their order. Ignored when the question is closed.
  void on_told(std::uint64_t number, edge_number edge, const std::vector<bool>& held);
  /// What a followed request has by now.
  void on_news(handover::news news, time_point now);
  /// The tier may have room again: loads that it answered with `wait` are tried again by the next plan().
  void retry() noexcept {
    for (source& each : sources_) each.blocked = false;
  }
  /// The session is closed or its client dead. The tier has released the blocks that were held for it.
  void on_session_closed(std::uint64_t session);
  /// Makes all decisions that are due. To be called after any of the above, and at wake_at().
  void plan(time_point now);
  void reload(const options& chosen) noexcept { options_ = chosen; }

  [[nodiscard]] std::vector<command> take_commands() { return std::exchange(commands_, {}); }
  /// For the tiers below that the questions name.
  [[nodiscard]] std::vector<question> take_questions();
  [[nodiscard]] std::vector<answer> take_answers();
  /// Requests to follow from now on, or not any more. on_news() takes what comes of it.
  [[nodiscard]] std::vector<handover::order> take_orders() { return std::exchange(orders_, {}); }
  /// When plan() has to be called at the latest; nothing: only when something happens.
  [[nodiscard]] std::optional<time_point> wake_at(time_point now) const noexcept;
  [[nodiscard]] prefetch::status status(time_point now = {}) const;
  /// Instances for which assumed_tokens_per_s was used for the first time, since the last call.
  [[nodiscard]] std::vector<std::uint32_t> take_assumed() { return std::exchange(assumed_, {}); }
  [[nodiscard]] std::uint64_t assumed_rate() const noexcept { return options_.assumed_tokens_per_s; }

 private:
  template <class T>
  using by_edge = std::array<T, max_edges>;

  /// What the client of a followed request waits for: keys from `position` on.
  struct key_question {
    std::uint32_t request = 0;  ///< its number in the session's ring
    std::size_t position = 0;
  };
  /// Of a job whose chain grows as another node makes it.
  struct following {
    bool is_open = true;     ///< more may come
    edge_number edge = 0;    ///< the tier below that other nodes' blocks come from
    std::uint32_t from = 0;  ///< see transfer::from
    error_code code = error_code::ok;
    std::optional<key_question> asked{};
    time_point again_at{};  ///< no load is asked for before
  };
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
    std::vector<spot> places;
    std::optional<inquiry> asks;     ///< open: the chain may go on behind `end`
    std::uint64_t least_blocks = 0;  ///< fewer are not worth a load
    double recompute = 0;            ///< seconds to recompute a block; 0: unknown, loading is not compared with it
    time_point deadline{};
    std::size_t prefix = 0;       ///< blocks from the front that are present
    by_edge<std::size_t> next{};  ///< first key that no load command from there named yet
    std::size_t kept = 0;         ///< no key before it is present that no load command named yet
    std::vector<bool> named;      ///< in a load command that was carried out: these are held when they are here
    std::size_t end = 0;          ///< first key that is not wanted (any more)
    reason end_reason = reason::complete;  ///< why the chain ends there
    std::optional<reason> stop_reason;     ///< stopped or cancelled
    by_edge<std::uint64_t> loads_left{};   ///< keys in [next, end) that are there
    std::uint64_t shared_with = 0;         ///< an older job with the same first `in_common` keys; 0: none
    std::size_t in_common = 0;
    std::bitset<max_edges> has_loads;          ///< something was loaded for it from there
    std::optional<edge_number> measures_only;  ///< a probe: loads for no client, which measure the source
    std::bitset<max_edges> waits_for_window;   ///< its first loads measure the source; it is not cut before they have
    by_edge<time_point> measuring_since{};
    bool holds_back = false;          ///< what is known of the chain does not pay, but what is asked for may
    edge_number cut_by = 0;           ///< the source that was too slow, where one was
    time_point since{};               ///< when it was asked for
    std::size_t first_prefix = 0;     ///< `prefix` at that time
    by_edge<std::uint32_t> loaded{};  ///< blocks that came for it from there
    double could_save = 0;            ///< seconds of recomputing, if the whole chain came
    double allowance = 0;             ///< seconds by which it may be slower than recomputing
    std::uint64_t charged = 0;        ///< bytes that it takes of both budgets
    bool finishing = false;           ///< its `finish` command is not answered yet
    std::optional<following> follow{};
    /// For keys in flight: bytes that arrive before them, their own included. Computed by note_arrivals().
    std::unordered_map<std::size_t, std::uint64_t> arrivals;
  };
  struct load_in_flight {
    edge_number edge = 0;
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
    key_list keys{};  ///< of one that followed a request; null: of any other
    std::size_t length = 0;
    error_code code = error_code::ok;  ///< of one that followed: why there is no more, and nobody has heard it
  };
  /// What is known of an instance's engine. Each has a loss account of its own, so that a wrong rate harms no other.
  struct engine {
    std::uint64_t rate = 0;   ///< prefill tokens/s that a client said last; 0: none did
    bool is_assumed = false;  ///< … and take_assumed() has named it
    loss_account losses;
  };
  /// A tier below as one that loads come from.
  struct source {
    throughput speed;
    probe_schedule probes;
    std::optional<command> open;  ///< the load command that is not answered yet
    std::uint64_t open_stride = 0;
    bool blocked = false;  ///< the tier answered `wait`: no loads until retry() or blocked_until
    time_point blocked_until{};
    load_turns turns;
    source_status counts;
  };
  using forecasts = by_edge<std::optional<forecast>>;
  enum class issued : std::uint8_t { yes, nothing, no_room, over_budget };

  [[nodiscard]] prefetch_job* find(std::uint64_t number) noexcept;
  void begin_job(request incoming, time_point now);
  [[nodiscard]] prefetch_job make_job(request& incoming, time_point now);
  void find_shared(prefetch_job& job) const;
  void read_ahead(const prefetch_job& behind, time_point now);
  void end_speculation();
  void on_cancel(const request& incoming);
  void refuse(const request& incoming, error_code code);
  void fail_question(std::uint64_t session, std::uint32_t request, error_code code);

  // planner_follows.cpp
  void begin_follow(request incoming, time_point now);
  void on_question(const request& incoming);
  [[nodiscard]] static bool waits_for_more(const prefetch_job& job) noexcept;
  [[nodiscard]] bool fits_grown(const prefetch_job& job, std::size_t more) const;
  void end_order(const prefetch_job& job);
  void tell_keys(std::uint64_t session, const key_question& asked, const std::vector<full_key>& keys, std::size_t end,
                 bool is_over);
  void answer_questions();
  void end_follow(std::map<std::uint64_t, prefetch_job>::iterator which, std::size_t length, time_point now);

  static void skip_resident(prefetch_job& job) noexcept;
  static void lose(prefetch_job& job, std::size_t key, reason why) noexcept;
  static void truncate_at(prefetch_job& job, std::size_t key, reason why) noexcept;
  static void find_end(prefetch_job& job, std::bitset<max_edges> asks, std::uint64_t tokens_per_block,
                       std::uint64_t threshold);
  void send_question(prefetch_job& job, time_point now);
  void close_question(prefetch_job& job);
  void close_overdue_questions(time_point now);
  void note_arrivals();
  [[nodiscard]] double rate_for(const request& incoming);
  [[nodiscard]] engine& engine_of(std::uint32_t instance);
  void return_allowance(const prefetch_job& job, double gained);
  void open_account(prefetch_job& job);
  void close_account(const prefetch_job& job, std::size_t length, time_point now);
  void compare_with_recompute(prefetch_job& job, const by_edge<std::uint64_t>& ahead, time_point now);
  [[nodiscard]] static bool may_measure(const prefetch_job& job) noexcept;
  void refuse_or_cut(prefetch_job& job, std::size_t end, time_point now);
  void begin_probe(source& from, time_point now);
  [[nodiscard]] static edge_number edge_behind(const prefetch_job& job, std::size_t key) noexcept;
  [[nodiscard]] bool is_measuring(const prefetch_job& job, edge_number edge) const noexcept;
  [[nodiscard]] bool becomes_probe(prefetch_job& job, edge_number edge, const forecast& speed, time_point now);
  void share_load(load_in_flight& under_way, std::uint64_t number, std::size_t key);
  void share_loads_in_flight(prefetch_job& job);
  void probe_behind(const prefetch_job& job, edge_number edge, std::size_t first, time_point now);
  [[nodiscard]] static time_point latest_wait_of(const prefetch_job& job) noexcept;
  [[nodiscard]] std::size_t best_end(const prefetch_job& job, std::size_t limit, const by_edge<std::uint64_t>& ahead,
                                     const forecasts& speeds, time_point now) const;
  [[nodiscard]] static bool is_over(prefetch_job& job, time_point now) noexcept;
  void issue_finish(prefetch_job& job);
  void issue_loads_from(edge_number edge, time_point now);
  [[nodiscard]] std::vector<prefetch_job*> loading_order(const source& tier, time_point now);
  [[nodiscard]] share_holder holder_of(const prefetch_job& job) const;
  issued issue_loads(prefetch_job& job, edge_number edge, time_point now);
  static void name_present(prefetch_job& job, std::vector<std::uint32_t>& which);
  [[nodiscard]] std::uint64_t room_for(const prefetch_job& job, edge_number edge, time_point now) const;
  [[nodiscard]] std::uint64_t probe_window(std::uint64_t stride, const source& from) const noexcept;
  [[nodiscard]] std::uint64_t budget_for(const prefetch_job& job) const;
  [[nodiscard]] bool alone_in_budget(const prefetch_job& job) const;
  [[nodiscard]] bool any_under_way() const noexcept;
  void on_load_result(const command_result& result, time_point now);
  void on_finish_result(const command_result& result, time_point now);
  void track_load(const load_answer& load, const command& by, std::uint64_t stride, std::size_t key, time_point now);
  [[nodiscard]] static memory::prefetch_outcome outcome_of(const prefetch_job& job, time_point now) noexcept;
  void release_hold(std::uint64_t number);
  void expire(time_point now);
  void refund(std::uint32_t instance, std::uint64_t bytes) noexcept;
  [[nodiscard]] std::size_t open_prefetches_of(std::uint64_t session) const noexcept;
  /// Keys of all that is open or kept, of the session and of those that pay with it.
  struct key_usage {
    share_usage taken{};
    std::size_t session = 0;
  };
  [[nodiscard]] key_usage keys_of(std::uint64_t session) const;
  void add_keys(key_usage& usage, std::uint64_t session, std::uint64_t other, std::size_t count) const;
  [[nodiscard]] bool fits_limits(const key_usage& usage, std::uint64_t session, std::size_t more) const;
  [[nodiscard]] bool fits_key_limits(const request& incoming) const;

  options options_;
  std::uint64_t next_job_ = 1;
  std::map<std::uint64_t, prefetch_job> jobs_;               ///< by number, so the oldest first; not answered yet
  std::map<std::uint64_t, held_job> held_;                   ///< by job
  std::map<std::uint64_t, share_holder> holders_;            ///< by session, of those that asked
  std::map<std::uint64_t, request> gathering_;               ///< session -> chain whose last request has not come yet
  std::map<std::uint64_t, load_in_flight> loads_in_flight_;  ///< by token, that is by the time of submission
  std::map<std::uint32_t, std::uint64_t> charged_;           ///< instance -> bytes
  std::uint64_t charged_in_all_ = 0;
  by_edge<source> sources_;
  std::map<std::uint32_t, engine> engines_;  ///< by instance
  std::vector<std::uint32_t> assumed_;
  continuations continuations_;
  lookups lookups_;
  std::vector<command> commands_;
  std::vector<question> questions_;
  std::vector<answer> answers_;
  std::vector<handover::order> orders_;
  prefetch::status counts_;
};

}  // namespace cenote::prefetch
