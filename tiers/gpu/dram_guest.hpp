// The way between a device's tier and DRAM: a session of the DRAM tier that writes blocks down to it, and fetches them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/guest_room.hpp"
#include "core/device_spec.hpp"
#include "core/error.hpp"
#include "device/device.hpp"
#include "tiers/blocks/types.hpp"
#include "tiers/gpu/copies.hpp"
#include "tiers/gpu/counters.hpp"
#include "tiers/transfer.hpp"

namespace cenote::gpu {

/// What the guest has others do. All are called on its owner's thread.
struct guest_hooks {
  /// Transfers that ended, each token once.
  std::function<void(std::vector<transfer_outcome>)> ended;
  /// Copies between the device and DRAM's slabs, and calls once when that has ended: see copies::begin().
  std::function<void(copy_way, std::vector<copy_run>, std::vector<std::span<std::byte>> slabs, copies::then)> copy;
  /// Called once: the device is not to be trusted with memory any more, and counts as away.
  std::function<void(const std::string& why)> lost;
  std::function<std::chrono::steady_clock::time_point()> now;
};

struct guest_options {
  std::string device;                               ///< its name, as device_spec::name
  std::uint64_t window = std::uint64_t{256} << 20;  ///< bytes of DRAM that are reserved at once; one block always may
  bool asks_tiers = false;                          ///< a tier below DRAM says what it holds only when it is asked
};

/// Carries a device's part of each block to DRAM, where the block is whole when all ranks' parts are there, and back.
/// Belongs to one thread. Memory that the device may still reach is neither given back nor reused: what did not end in
/// time never ends (`lost`), and neither do its pins and reservations in DRAM.
class dram_guest final {
 public:
  using steady_time = std::chrono::steady_clock::time_point;
  using answer = std::function<void(result<std::uint64_t>)>;

  static constexpr std::chrono::seconds transfer_limit{10};  ///< for each step of a transfer
  static constexpr std::chrono::seconds forget_limit{8};
  static constexpr std::chrono::seconds open_again{1};  ///< an instance that DRAM refused is tried again after so long
  static constexpr std::chrono::milliseconds grace{500};  ///< of a question, beside its own patience
  static constexpr std::size_t most_in_batch = 512;       ///< blocks

  /// Room and device outlive the guest, or answer no more once it has gone.
  dram_guest(cluster::guest_room& room, const device& on, guest_hooks hooks, guest_options options)
      : room_(room), device_(on), hooks_(std::move(hooks)), options_(std::move(options)) {}
  dram_guest(const dram_guest&) = delete;
  dram_guest& operator=(const dram_guest&) = delete;
  ~dram_guest();

  /// `share`: of what in DRAM the instance is a part; without one nothing goes to DRAM or comes from it.
  void bind(std::uint32_t number, instance_spec spec, std::shared_ptr<const instance_share> share);
  void unbind(std::uint32_t number);
  /// From the device to DRAM. `done`: DRAM has the block whole; `dropped`: it does not.
  void write(std::span<const transfer> blocks);
  /// From DRAM, or from a tier below it, to the device.
  void fetch(std::span<const transfer> blocks);
  /// Which of them DRAM and the tiers below it have.
  void locate(key_query asked, std::function<void(key_answer)> then);
  /// What the device's tier removes, DRAM forgets. `then` has how many blocks went. Errors: invalid_argument (nothing
  /// of that name is known here), removal_pending (DRAM may still have them).
  void forget(const std::vector<blocks::removal>& removals, answer then);
  /// What DRAM has removed is not written to it. Returns the same removals by the numbers of the device's tier. `then`
  /// is called when nothing that was on its way brings the blocks back. Errors: removal_pending.
  std::vector<blocks::removal> stop_writing(const std::vector<blocks::removal>& removals, answer then);
  /// Ends what is overdue; a few times a second.
  void advance(steady_time now);

  [[nodiscard]] bool is_lost() const noexcept { return !lost_.empty(); }
  [[nodiscard]] guest_counters counters() const;

 private:
  struct waiting_write {
    transfer what;
    steady_time until{};
  };
  /// An instance of the device's tier, and its session of the DRAM tier.
  struct bound {
    std::uint32_t number = 0;
    instance_spec spec;  ///< as it is on the device
    std::shared_ptr<const instance_share> share;
    cluster::guest_session_ptr session{};  ///< null: not open
    bool is_opening = false;
    steady_time open_again_at{};
    std::deque<waiting_write> writes{};  ///< until it is open and the window has room
    std::vector<std::function<void(const result<void>&)>> when_open{};

    [[nodiscard]] const group_spec& whole(std::uint32_t group) const { return share->whole.groups[group]; }
    [[nodiscard]] std::uint32_t part(std::uint32_t group) const { return part_on_device(whole(group), share->rank); }
    [[nodiscard]] std::uint64_t mask(std::uint32_t group) const { return std::uint64_t{1} << part(group); }
    [[nodiscard]] std::uint64_t part_bytes(std::uint32_t group) const { return whole(group).parts[part(group)].bytes; }
    [[nodiscard]] bool has(const transfer& one) const { return share && one.group < share->whole.groups.size(); }
  };
  using bound_ptr = std::shared_ptr<bound>;

  enum class stage : std::uint8_t {
    opening,    ///< up: the instance
    bringing,   ///< up: from below DRAM
    reserving,  ///< down
    placing,    ///< pinned or reserved; it is not known yet where it lies
    copying,
    finishing,  ///< down
  };
  struct moving {
    transfer what;
    bool is_unwanted = false;  ///< down: it was removed meanwhile
    bool is_told = false;      ///< its token has ended
    memory::block_ref block{};
    std::uint32_t grant_version = 0;  ///< down
    memory::pin pin{};                ///< up
  };
  /// Blocks of one group on their way together.
  struct batch {
    bound_ptr of;
    std::uint32_t group = 0;
    std::vector<moving> blocks;
    stage at{};
    steady_time until{};
    bool is_stuck = false;  ///< the device may still reach its memory: nothing of it ends
    std::vector<std::function<void()>> when_finished{};
  };
  using batches = std::map<std::uint64_t, batch>;
  struct question {
    bound_ptr of;
    key_query asked;
    std::vector<bool> held;
    steady_time until{};
    std::function<void(key_answer)> then;
  };
  struct forgetting {
    std::size_t open = 1;
    std::uint64_t removed = 0;
    std::optional<error> wrong{};
    steady_time until{};
    answer then;
  };
  // instances
  [[nodiscard]] bound_ptr find(std::uint32_t number) const;
  void with_open(const bound_ptr& of, std::function<void(const result<void>&)> then);
  void opened(const bound_ptr& of, result<cluster::guest_session_ptr> how);
  void close_unused();

  // both ways
  [[nodiscard]] std::uint64_t add(batches& to, batch what);
  void conclude(const transfer& one, transfer_result what);
  void end(moving& one, transfer_result what);
  void drop_waiting(bound& of);
  void end_all(batch& of, transfer_result what);
  [[nodiscard]] std::vector<std::uint32_t> slabs_of(const batch& of) const;
  [[nodiscard]] static std::byte* part_in(const batch& of, const moving& one,
                                          std::span<const memory::slab_place> slabs);
  [[nodiscard]] static std::vector<std::span<std::byte>> memory_of(std::span<const memory::slab_place> slabs);
  void begin_copy(copy_way way, std::vector<copy_run> runs, std::span<const memory::slab_place> slabs,
                  copies::then ended);
  [[nodiscard]] bool has_taken_its_memory(batch& of, const copy_end& end);
  void lose(const std::string& why);
  void flush();

  // down
  void pump_writes();
  bool begin_writes(const bound_ptr& of);
  [[nodiscard]] std::vector<moving> take_waiting(bound& of, std::size_t most);
  void drop_present(batch& of);
  void reserve(std::uint64_t serial);
  void reserved(std::uint64_t serial, const std::vector<memory::completion>& how);
  void place_write(std::uint64_t serial, std::span<const memory::slab_place> slabs);
  void copied_down(std::uint64_t serial, const copy_end& end);
  void finish(std::uint64_t serial);
  void finished(std::uint64_t serial, const std::vector<memory::completion>& how);
  void give_back(batch& of, transfer_result what, bool unwanted_only);
  [[nodiscard]] bool erase_if_empty(std::uint64_t serial);
  void write_is_overdue(std::uint64_t serial);

  // up
  void begin_fetch(const bound_ptr& of, std::vector<moving> blocks);
  void lend(std::uint64_t serial, bool may_bring_up);
  [[nodiscard]] std::vector<moving> pin_present(batch& of);
  void seek_below(const bound_ptr& of, std::uint32_t group, std::vector<moving> absent);
  void bring_up(const bound_ptr& of, std::uint32_t group, std::vector<moving> wanted);
  void touch(const batch& of);
  void place_read(std::uint64_t serial, std::span<const memory::slab_place> slabs);
  void copied_up(std::uint64_t serial, const copy_end& end);
  void unpin(const batch& of);
  void read_is_overdue(std::uint64_t serial);

  // questions and removals
  void look(std::uint64_t serial);
  void ask_below(std::uint64_t serial, std::size_t first);
  void answer_question(std::uint64_t serial, std::size_t first, std::uint64_t reached);
  [[nodiscard]] bool is_meant(const bound& one, const blocks::removal& what) const;
  [[nodiscard]] static bool is_meant_by_dram(const bound& one, const blocks::removal& what);
  [[nodiscard]] std::vector<std::uint64_t> stop(bound& of, const blocks::removal& what,
                                                std::vector<block_key>& finishing);
  void after(const std::vector<std::uint64_t>& writes, std::function<void()> then);
  void stop_and_undo(std::uint64_t serial, const bound_ptr& of, const blocks::removal& what);
  void stop_and_remove(std::uint64_t serial, const bound_ptr& of, const blocks::removal& what);
  void remove(std::uint64_t serial, const bound_ptr& of, const blocks::removal& what);
  [[nodiscard]] std::uint64_t begin_forgetting(answer then);
  void settle(std::uint64_t serial, const result<std::uint64_t>& how);

  cluster::guest_room& room_;
  const device& device_;
  guest_hooks hooks_;
  guest_options options_;
  std::map<std::uint32_t, bound_ptr> bound_;
  std::vector<bound_ptr> leaving_;  ///< not bound any more; closed when nothing of them is under way
  batches writes_, reads_;
  std::map<std::uint64_t, question> questions_;
  std::map<std::uint64_t, forgetting> removals_;
  std::uint64_t next_serial_ = 1;
  std::uint64_t reserved_ = 0;  ///< bytes of DRAM
  std::vector<transfer_outcome> outcomes_;
  guest_counters counters_;
  std::string lost_;  ///< why; empty: it is not
};

}  // namespace cenote::gpu
