// A session: what an engine process does with the node. cenote.h is the same as a C ABI.
//
// Keys come in batches of one width (8 to 64 bytes). Lookups and reads of mapped blocks make no system call. Every call
// that needs the node has the session's deadline; a worker that is replaced meanwhile is waited for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/call_gate.hpp"
#include "client/channel.hpp"
#include "client/connection.hpp"
#include "client/deadline_mutex.hpp"
#include "client/device_copier.hpp"
#include "client/device_events.hpp"
#include "client/ending_pins.hpp"
#include "client/fork_guard.hpp"
#include "client/grant_pool.hpp"
#include "client/slab_map.hpp"
#include "client/slab_watch.hpp"
#include "client/span_outbox.hpp"
#include "client/use_rate.hpp"
#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "core/trace_context.hpp"
#include "memory/lookup.hpp"
#include "memory/pin_slots.hpp"
#include "memory/prefetch_terms.hpp"

namespace cenote::client {

struct session_options {
  instance_spec spec;             ///< of the whole instance
  std::string device{};           ///< that the blocks lie on, see core/device_spec.hpp; empty: they are host memory
  std::uint32_t part = 0;         ///< with a device: the rank whose part of each block lies there
  std::string socket;             ///< empty: default_socket_path()
  std::string token;              ///< empty: none
  std::string client_name;        ///< for `cenote status`; empty: the process's name
  std::uint32_t max_pins = 8192;  ///< blocks that may be pinned at one time; the node may grant fewer
  std::chrono::nanoseconds deadline = std::chrono::seconds(5);  ///< of every call that needs the node
  std::chrono::milliseconds check_interval{100};                ///< see channel
};

/// One buffer a key: a list, or `count` buffers of `bytes` each, `stride` apart from `base` on. Does not own.
class buffers {
 public:
  struct item {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  explicit buffers(std::span<const item> list) noexcept : list_(list), count_(list.size()) {}
  buffers(std::byte* base, std::uint64_t bytes, std::uint64_t stride, std::size_t count) noexcept
      : base_(base), bytes_(bytes), stride_(stride), count_(count) {}

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] item operator[](std::size_t i) const noexcept {
    return base_ == nullptr ? list_[i] : item{base_ + i * stride_, bytes_};
  }

 private:
  std::span<const item> list_;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t stride_ = 0;
  std::size_t count_;
};

struct match_result {
  std::uint64_t resident = 0;   ///< blocks: length of the prefix in DRAM, or end of the last full window
  std::uint64_t reachable = 0;  ///< at least `resident`: also blocks in lower tiers of the node, by hints
};

/// A block pinned for reading.
struct held_block {
  const std::byte* data = nullptr;  ///< of a session on a device: there, and not for the processor
  std::uint64_t bytes = 0;          ///< of the whole block, parts in declared order
  std::uint32_t slot = 0;           ///< what release() wants
};

enum class reserve_state : std::uint32_t {
  writable = 1,  ///< fill the parts, then commit
  present = 2,   ///< complete already: do not write
  pending = 3,   ///< another writer has these parts: do not write
};

/// What reserve() says of one key.
struct reserved_block {
  std::byte* data = nullptr;  ///< of the whole block; null unless writable. On a device: as held_block's
  std::uint64_t bytes = 0;    ///< of the whole block
  std::uint64_t block = 0;    ///< names the block in commit and release
  std::uint64_t parts = 0;    ///< mask of the parts that are ours
  std::uint32_t grant_version = 0;
  std::uint32_t group = 0;
  reserve_state state = reserve_state::pending;
};

/// How far a put came. With a failure, exactly the first `stored` keys of the batch are present.
struct put_report {
  std::uint64_t stored = 0;  ///< success: blocks (or parts) newly stored by this call
  result<void> status;
};

/// Counters since the attach, of this client.
struct session_stats {
  std::uint64_t keys_looked_up = 0;
  std::uint64_t keys_found = 0;
  std::uint64_t blocks_pinned = 0;
  std::uint64_t blocks_copied_out = 0;
  std::uint64_t bytes_copied_out = 0;
  std::uint64_t blocks_stored = 0;
  std::uint64_t bytes_copied_in = 0;
  std::uint64_t pins_in_use = 0;
  std::uint64_t pin_slots = 0;
  std::uint64_t reservations = 0;
  std::uint64_t slabs_mapped = 0;
  std::uint64_t touches_dropped = 0;
  std::uint64_t reattaches = 0;
  std::uint64_t session = 0;
  std::uint64_t slabs_registered = 0;    ///< with the session's device, whole
  std::uint64_t slabs_refused = 0;       ///< by it; copies of their blocks go through a stage
  std::uint64_t waiting_for_device = 0;  ///< calls of release_after and commit_after
  std::uint64_t bytes_registered = 0;    ///< so far, also those that were unregistered since
  std::uint64_t registration_ns = 0;     ///< in the device's calls for them, and for those that it refused
};

/// When a prefetch ends before all is there. What is not given is as the node's configuration says.
struct prefetch_options {
  memory::prefetch_policy policy = memory::prefetch_policy::node_default;
  std::optional<std::chrono::milliseconds> base;          ///< of the policy timeout
  std::optional<std::chrono::milliseconds> per_ki_token;  ///< … for each 1,024 tokens that are not in DRAM
  std::optional<std::uint64_t> prefill_rate;              ///< tokens/s of this engine; 0: recomputing is no alternative
  std::optional<std::uint32_t> threshold_tokens;          ///< fewer tokens in lower tiers are not brought up
  std::optional<trace_context> trace{};                   ///< of the request; with a sampled one a span is made
};

/// When something began that is to have a span.
struct trace_start {
  trace_context parent{};
  std::uint64_t at_ns = 0;  ///< since 1970
  time_point began{};
};

/// A load of an engine, for its span.
struct traced_load {
  trace_context parent{};
  std::uint64_t begin_ns = 0, end_ns = 0;  ///< since 1970
  std::uint64_t blocks = 0, loaded = 0;    ///< in all, and of them those that are in place
  std::uint64_t bytes = 0;
};

/// A chain on its way up from the lower tiers. Used by one thread at a time; must not outlive its session.
struct prefetch_ticket {
  std::vector<std::byte> keys;  ///< back to back
  std::size_t width = 0;
  std::uint32_t group = 0;
  std::uint64_t epoch = 0;              ///< of the worker that the prefetch was sent to
  std::uint32_t chain = 0;              ///< its number, by which later calls name it
  std::vector<request_ptr> requests{};  ///< one for each max_batch keys; the last is answered when the prefetch ends
  std::uint64_t length = 0;             ///< when done: blocks of the prefix that were resident then
  bool done = false;
  bool told = false;                   ///< the node was told that the prefetch and its hold are not wanted any more
  bool follows = false;                ///< a request: `keys` grows as its blocks come
  std::optional<trace_start> trace{};  ///< its span is not sent yet

  [[nodiscard]] key_batch batch() const noexcept { return {keys.data(), width == 0 ? 0 : keys.size() / width, width}; }
};

/// A length that a rank has for a question, or that all ranks got.
struct group_length {
  std::uint64_t question = 0;
  std::uint64_t length = 0;
};

/// One rank of a group of ranks. Thread-safe; must not outlive its session.
struct group_ticket {
  std::string name;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::chrono::nanoseconds timeout{};  ///< of each question
  std::uint32_t handle = 0;            ///< its number at the node
  std::uint64_t epoch = 0;             ///< of the worker that knows it; another one does not

  std::mutex mutex{};               ///< of all below
  std::vector<request_ptr> open{};  ///< questions of start() that poll() did not return yet
  std::optional<error> lost{};      ///< for good: what every later call says
};

class session;

/// Ends and deletes a session; in a forked child it leaves everything alone.
struct session_closer {
  void operator()(session* which) const noexcept;
};
using session_ptr = std::unique_ptr<session, session_closer>;

/// Thread-safe: any number of threads may use one session.
class session {
 public:
  /// Attaches to a node. Errors: not_running, permission_denied, spec_mismatch, protocol_mismatch, invalid_argument, …;
  /// with a device also those of device::open.
  static result<session_ptr> attach(session_options options);

  /// `home`: the device that the blocks lie on, whose share of each block is what `options.spec` says; null: they are
  /// host memory.
  explicit session(attachment parts, session_options options, std::shared_ptr<device> home = nullptr);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session() = default;

  // ---- reading

  /// Longest present prefix.
  result<match_result> match_prefix(key_batch keys, std::uint32_t group);
  /// End (one past the last key) of the last run of `window` present keys; 0 when there is none.
  /// Whether a tier below says what it holds only when it is asked: match_prefix() knows nothing of it.
  [[nodiscard]] bool asks_tiers() const noexcept;
  /// match_prefix(), with those tiers below asked that have no hints. What is not known after `patience`, or because
  /// the node restarts, does not count. Nothing is loaded.
  result<match_result> locate(key_batch keys, std::uint32_t group, std::chrono::nanoseconds patience);
  result<match_result> match_window(key_batch keys, std::uint32_t group, std::size_t window);
  /// present[i] = 1 when key i is complete in DRAM. `present` has keys.count places.
  result<void> exists(key_batch keys, std::uint32_t group, std::span<std::uint8_t> present);

  /// Pins the resident prefix into out[0..n), which has keys.count places. Errors: pin_limit.
  result<std::size_t> acquire(key_batch keys, std::uint32_t group, std::span<held_block> out);
  /// Ends pins. The bytes must not be read any more.
  result<void> release(std::span<const std::uint32_t> slots);
  result<void> release(std::span<const held_block> held);
  /// Copies the resident prefix (of `part`, or whole blocks) and returns its length. Pins only while it copies.
  result<std::size_t> get_into(key_batch keys, std::uint32_t group, std::optional<std::uint32_t> part, buffers targets);

  /// Begins to load the blocks of the chain that are in lower tiers, and returns at once. From its end until drop(),
  /// ten seconds at most, what was loaded is not evicted: pin it meanwhile. Errors: invalid_argument.
  result<prefetch_ticket> prefetch(key_batch keys, std::uint32_t group, const prefetch_options& options = {});
  /// Waits until the prefetch ends, but not after `until`: true when it has ended, false when it goes on. If the worker
  /// was replaced meanwhile, it ends with the blocks that are resident.
  result<bool> wait(prefetch_ticket& ticket, time_point until);
  /// Length of the chain's prefix that is resident now. No system call, but for a request that is followed.
  [[nodiscard]] result<std::size_t> progress(prefetch_ticket& ticket);
  /// Says which blocks belong to a request (1 to 64 bytes), in their order, before or after they are stored: whoever
  /// follows it gets them. `first`: place of keys[0] in the request; none: behind those that were published. Returns
  /// how many there are now. Errors: invalid_argument, limit_exceeded.
  result<std::uint64_t> publish(std::span<const std::byte> request, key_batch keys, std::uint32_t group,
                                std::optional<std::uint64_t> first, bool ends);
  /// Begins to bring up the blocks of a request as they are stored at another node (empty: this one), for `patience`, a
  /// minute at most; returns at once. The ticket is as a prefetch's; its keys are those that came. wait() has the
  /// errors: unsupported (this node asks no others), limit_exceeded.
  result<prefetch_ticket> follow(std::span<const std::byte> request, std::string_view node, std::uint32_t group,
                                 std::chrono::nanoseconds patience);
  /// Says that the engine is ready to compute: a best_effort prefetch ends with the blocks that are resident; others go
  /// on.
  result<void> stop(const prefetch_ticket& ticket);
  /// Ends the prefetch at once with the blocks that are resident, without a hold. Loads in flight still arrive.
  result<void> cancel(prefetch_ticket& ticket);
  /// Ends the prefetch, or its hold. For a ticket that nobody waits for any more.
  void drop(prefetch_ticket& ticket);

  /// Whether the node hands spans of sampled requests to a collector. No system call.
  [[nodiscard]] bool wants_spans() const noexcept;
  /// Sends the span of a load, if the node wants it and its request is sampled. Never waits. Errors: invalid_argument
  /// (a load that ends before it begins, numbers beyond 2^63).
  result<void> trace_load(const traced_load& load);

  // ---- groups of ranks

  /// Joins as one rank of `size` and waits `patience` for the others. A rank that joins again ends the group for all
  /// ranks, which join again, too. Errors: invalid_argument; limit_exceeded; deadline_exceeded: some rank did not come;
  /// group_lost; unsupported: the node knows no groups.
  result<std::unique_ptr<group_ticket>> join(std::string name, std::uint32_t rank, std::uint32_t size,
                                             std::chrono::nanoseconds timeout, std::chrono::nanoseconds patience);
  /// The least length of all ranks for a question, or 0 when some rank did not say its own in time: the same number for
  /// all of them. Every rank asks the same questions, each once. Errors: group_lost, from then on, after the timeout at
  /// the latest; limit_exceeded: too many are open.
  result<std::uint64_t> agree(group_ticket& group, std::uint64_t question, std::uint64_t length);
  /// Asks several at once and returns; poll() has the answers. Errors as above.
  result<void> start(group_ticket& group, std::span<const group_length> questions);
  /// What is decided of those, in any order; each once. Waits `patience` at most for the first one, without a system
  /// call if it is there. 0 at once when none is open. Errors: group_lost.
  result<std::size_t> poll(group_ticket& group, std::span<group_length> out, std::chrono::nanoseconds patience);
  /// Ends the group for all of its ranks. Their calls fail with group_lost, as this one's do. Never fails but when the
  /// session does.
  result<void> leave(group_ticket& group);

  // ---- writing

  /// Stores what is not there yet; visible to every session when it returns.
  put_report put(key_batch keys, std::uint32_t group, std::optional<std::uint32_t> part, buffers sources);
  /// Copies the blocks and submits them without waiting for the answer: flush() has it. The buffers may be used again
  /// at once.
  put_report put_async(key_batch keys, std::uint32_t group, std::optional<std::uint32_t> part, buffers sources);
  /// Waits for all put_async of this session; the number newly stored since the last flush, or the first failure.
  result<std::uint64_t> flush();

  /// Binds blank blocks to keys, to be filled by the caller. `out` has keys.count places. All or nothing: when a key is
  /// refused, all are given back.
  result<void> reserve(key_batch keys, std::uint32_t group, std::optional<std::uint32_t> part,
                       std::span<reserved_block> out);
  /// The parts of these blocks are written. Entries that are not writable are skipped. Returns how many blocks became
  /// complete. Errors: revoked, not_reserved (the first refusal; the others took effect).
  result<std::uint64_t> commit(std::span<const reserved_block> blocks);
  /// Gives reservations back uncommitted.
  result<void> release(std::span<const reserved_block> blocks);

  /// Forgets keys; how many were there.
  result<std::uint64_t> remove(key_batch keys, std::uint32_t group);
  /// Exempts present blocks from eviction (`kept`), or ends that. Returns how many blocks now are as asked. They count
  /// against the instance group's quota of kept blocks: limit_exceeded when it is used up; the first keys took effect.
  result<std::uint64_t> keep(key_batch keys, std::uint32_t group, bool kept);
  /// Forgets the whole instance; done when it returns.
  result<void> clear();
  /// Removals and clears of the instance that are answered as pending and wait still, and how many nodes and servers
  /// have not confirmed one of them.
  result<local::unconfirmed_reply> unconfirmed();
  /// Waits until all that this session submitted before has been carried out.
  result<void> barrier();

  // ---- devices

  /// Must be called before a device works on this session's blocks: from now on all live slabs of the instance are
  /// mapped and registered with it, in the background, and the node learns that it may write for a while after this
  /// process was killed. Errors: invalid_argument: the session uses another device.
  result<void> use_device(std::shared_ptr<device> which);
  /// Ends pins when all that the stream was given before has ended; until then nobody else ends them. Errors:
  /// invalid_argument (also: one of them ends by an earlier call), closed (the device is away), system; then nothing
  /// changed.
  result<void> release_after(std::span<const std::uint32_t> slots, const device_stream& where);
  /// Commits at that time, in the background; flush() says how it went. If the device fails, the blocks are never
  /// committed nor used for anything else before the session has ended. Errors as above; then they stay reserved.
  result<void> commit_after(std::span<const reserved_block> blocks, const device_stream& where);

  // ---- the rest

  /// Errors: forked.
  [[nodiscard]] result<session_stats> stats() const;
  /// Refuses further calls, waits for put_async and for devices, ends the pins, tells the node. The mappings stay until
  /// the destructor. Errors: deadline_exceeded: a device still works; the node keeps the blocks until the process ends.
  result<void> close();

  /// Of what a block has here: with a device, one part a group.
  [[nodiscard]] const instance_spec& spec() const noexcept { return options_.spec; }
  /// That the blocks lie on; null: they are host memory.
  [[nodiscard]] std::shared_ptr<device> home() const { return copier_ ? copier_->owner() : nullptr; }
  [[nodiscard]] bool in_child() const noexcept { return process_.in_child(); }
  /// Leaves the counting of calls to `gate`, which every call passes from now on, close() among them.
  void use_gate(const call_gate& gate) noexcept { gate_ = &gate; }
  /// A device still works on blocks: the mappings must stay.
  [[nodiscard]] bool device_works() const {
    return events_.under_way() != 0 || unended_.load(std::memory_order_acquire) != 0;
  }

 private:
  using maybe_part = std::optional<std::uint32_t>;

  /// Keeps close() waiting while a call is under way.
  class call_scope {
   public:
    /// Null: the call is counted elsewhere.
    explicit call_scope(std::atomic<std::uint32_t>* active) noexcept : active_(active) {}
    call_scope(call_scope&& other) noexcept : active_(std::exchange(other.active_, nullptr)) {}
    call_scope& operator=(call_scope&&) = delete;
    call_scope(const call_scope&) = delete;
    call_scope& operator=(const call_scope&) = delete;
    ~call_scope() {
      if (active_ != nullptr) active_->fetch_sub(1, std::memory_order_release);
    }

   private:
    std::atomic<std::uint32_t>* active_;
  };
  call_scope begin_call() noexcept;
  [[nodiscard]] bool other_calls() const noexcept;
  /// First step of every call: fails when the session cannot serve it.
  result<call_scope> enter();
  /// enter(), and checks the keys and the group's number.
  result<call_scope> enter(key_batch keys, std::uint32_t group);
  [[nodiscard]] time_point deadline() const { return std::chrono::steady_clock::now() + options_.deadline; }
  [[nodiscard]] result<void> check_buffers(std::uint32_t group, maybe_part part, key_batch keys,
                                           const buffers& list) const;
  [[nodiscard]] result<void> check_part(std::uint32_t group, maybe_part part) const;
  [[nodiscard]] const group_spec& group_at(std::uint32_t group) const noexcept { return options_.spec.groups[group]; }

  // session.cpp
  result<void> map_slabs(std::span<const memory::block_ref> blocks, time_point until);
  result<void> fetch_slabs(const std::vector<std::uint32_t>& missing, time_point until);
  result<void> check_held(std::span<const std::uint32_t> slots) const;
  static result<void> ends_already(std::uint32_t slot);
  void look_ahead(std::span<const memory::block_ref> blocks);
  std::chrono::nanoseconds look_after_slabs();
  void map_pages(std::span<const memory::block_ref> blocks) const noexcept;
  void drop_retired_slabs(std::size_t tolerated);
  template <class SlotAt>
  result<void> release_slots(std::size_t count, SlotAt&& slot_at);
  void touch(std::span<const memory::pin> pins, key_batch keys, std::uint32_t group);
  result<void> ask_for_keys(prefetch_ticket& ticket);
  static void take_keys(prefetch_ticket& ticket, const request& from);
  [[nodiscard]] std::size_t prefix_of(const prefetch_ticket& ticket);
  [[nodiscard]] std::byte* address(memory::block_ref block) const noexcept;
  [[nodiscard]] bool describe(std::span<const memory::pin> pins, std::uint64_t bytes,
                              std::span<held_block> out) const noexcept;
  result<std::size_t> copy_prefix(key_batch keys, std::uint32_t group, maybe_part part, const buffers& targets,
                                  std::size_t first, std::vector<memory::pin>& touched);
  result<void> leave_node();
  std::size_t ask_reach(key_batch keys, std::uint32_t group, time_point until);
  result<void> tell(memory::operation what, const prefetch_ticket& ticket);
  // session_trace.cpp
  void begin_span(prefetch_ticket& ticket, const prefetch_options& options) const;
  void end_span(prefetch_ticket& ticket, local::span_end end, const memory::completion* answer = nullptr);

  // session_group.cpp
  [[nodiscard]] bool knows(const group_ticket& group) const noexcept;
  result<void> check_in(group_ticket& group);
  error lose(group_ticket& group, const std::string& why);
  error lose_or_fail(group_ticket& group, const error& why);
  result<std::uint64_t> decided(group_ticket& group, const request& answered);
  result<bool> await_ranks(const group_ticket& group, request& which, time_point until);
  void say_leave(const group_ticket& group);

  // session_device.cpp
  result<void> check_device(const device_stream& where);
  void end_pins(std::span<const std::uint32_t> slots) noexcept;
  void commit_written(std::span<const reserved_block> blocks, const result<void>& outcome);
  result<void> write_to_home(std::span<const copy_run> runs, std::function<void()> give_back);
  result<void> read_from_home(std::span<const copy_run> runs, std::span<const memory::pin> pinned);
  void await_end(const event_ref& last, device_events::runs_on thread, device_events::task then);

  // session_write.cpp
  struct put_job;
  put_report put_any(key_batch keys, std::uint32_t group, maybe_part part, const buffers& sources, bool wait);
  result<void> put_step(put_job& job);
  result<void> put_whole(put_job& job, std::span<const std::uint32_t> places);
  result<void> put_part(put_job& job, std::span<const std::uint32_t> places);
  result<void> conclude(put_job& job, std::vector<memory::submission>& batch);
  [[nodiscard]] std::vector<std::uint32_t> missing_keys(key_batch keys, std::uint32_t group, std::size_t first) const;
  result<void> take_grants(std::uint32_t group, std::size_t wanted, std::vector<grant>& out);
  void give_back(std::span<const grant> grants);
  void ask_for_grants(const put_job& job, std::size_t used, memory::submission& last) const noexcept;
  void remember_async(request_ptr batch, time_point until);
  void await_oldest_async(std::unique_lock<std::mutex>& lock, time_point until);
  void note_async(const result<std::uint64_t>& stored);
  void collect_async(const result<memory::completion>& outcome);
  result<std::uint64_t> flush_all(time_point until);
  result<std::vector<memory::completion>> ask_reservations(key_batch keys, std::uint32_t group, std::uint64_t parts,
                                                           std::span<const std::uint32_t> places);
  result<std::vector<memory::completion>> ask_admitted(key_batch keys, std::uint32_t group, std::uint64_t parts,
                                                       std::span<const std::uint32_t> places);
  void give_back(std::span<const memory::completion> reserved, std::uint64_t parts);
  result<std::uint64_t> finish_parts(std::span<const reserved_block> blocks);
  result<std::uint64_t> send_in_batches(std::span<memory::submission> entries);
  [[nodiscard]] error counted(const error& pending, time_point end);

  session_options options_;
  fork_guard process_;
  local::attach_reply ids_;
  memory::segment session_segment_;
  memory::session_memory memory_;
  memory::index_memory index_;
  memory::version_table versions_;
  memory::pin_slots pin_slots_;
  ending_pins ending_;
  memory::lookup lookup_;
  grant_pool grants_;
  reservations reservations_;
  connection socket_;
  span_outbox spans_;
  channel channel_;

  const call_gate* gate_ = nullptr;  ///< set before the session is shared; null: active_ counts
  std::atomic<bool> closing_{false};
  std::atomic<std::uint32_t> active_{0};
  std::atomic<std::uint32_t> next_chain_{1};  ///< of prefetches
  std::atomic<std::uint32_t> next_group_{1};  ///< handles of groups of ranks

  std::atomic<std::uint32_t> unended_{0};  ///< copies of put and get that nobody waits for, without their end

  std::atomic<std::uint32_t> looked_at_{0};  ///< the last slab that was mapped ahead of need
  use_rate uses_;                            ///< of blocks to write
  std::atomic<bool> maps_all_{false};  ///< a device works with the blocks: every live slab is mapped ahead of need
  slab_watch watch_;                   ///< this and the next: of the thread of slabs_
  time_point next_drop_{};             ///< of retired slabs
  slab_map slabs_;                     ///< its thread may use all above, so it is destroyed before

  std::mutex device_mutex_;
  std::shared_ptr<device> device_;                ///< set once
  const std::unique_ptr<device_copier> copier_;   ///< null: blocks are host memory
  std::atomic<std::uint32_t> may_be_written_{0};  ///< puts among them, and those that failed: for good

  deadline_mutex async_turn_;      ///< of the thread that waits for answers to put_async; taken before async_mutex_
  std::mutex async_mutex_;         ///< of all below; nobody waits with it
  std::deque<request_ptr> async_;  ///< put_async batches without an answer yet
  std::uint64_t async_stored_ = 0;
  std::optional<error> async_failure_;  ///< the first one

  struct counters {  // those of lookups are in the session's memory
    std::atomic<std::uint64_t> blocks_pinned{0};
    std::atomic<std::uint64_t> blocks_copied_out{0};
    std::atomic<std::uint64_t> bytes_copied_out{0};
    std::atomic<std::uint64_t> blocks_stored{0};
    std::atomic<std::uint64_t> bytes_copied_in{0};
  } counters_;

  device_events events_;  ///< last: its thread uses the rest
};

}  // namespace cenote::client
