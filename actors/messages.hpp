// All messages between actors. Payloads are node-local: a pointer to something that nobody changes, or, for a batch,
// that only its present holder changes.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/session_resources.hpp"
#include "actors/tier_numbers.hpp"
#include "actors/tier_report.hpp"
#include "config/node_config.hpp"
#include "core/device_spec.hpp"
#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "core/histogram.hpp"
#include "core/instance_spec.hpp"
#include "memory/block_record.hpp"
#include "memory/instance_memory.hpp"
#include "tiers/block_changes/change_question.hpp"
#include "tiers/blocks/provisioner.hpp"
#include "tiers/blocks/types.hpp"
#include "tiers/prefetch/commands.hpp"
#include "tiers/prefetch/planner.hpp"
#include "tiers/transfer.hpp"
#include "transport/local/attach.hpp"

namespace cenote {

/// An answer that carries our own error across actors, or a number on success.
struct outcome {
  error_code code = error_code::ok;
  std::string message;
  std::uint64_t value = 0;

  [[nodiscard]] static outcome of(const result<void>& done) {
    return done ? outcome{} : outcome{done.error().code(), done.error().message(), 0};
  }
  [[nodiscard]] result<std::uint64_t> get() const {
    if (code != error_code::ok) return fail(code, message);
    return value;
  }
};

/// The instance that a client wants to attach to: it is made if there is none.
struct instance_request {
  instance_spec spec;
  std::shared_ptr<const instance_share> share{};  ///< of a device: what it is of a whole instance
  std::uint32_t owner = 0;                        ///< the uid of who asks
  mutable std::atomic<bool> is_given_up{false};   ///< by who asked: it need not be made any more
};

/// An instance that was just made, on its way into the tier.
struct new_instance {
  outcome status;
  blocks::instance_number number = 0;
  std::optional<memory::instance_memory> memory;  ///< when it went well
};

/// What a client gets of its instance: read-only descriptors.
struct opened_instance {
  outcome status;
  blocks::instance_number number = 0;
  unique_fd index;
  unique_fd versions;
};

/// Slabs that a client asked for; those that are gone are missing.
struct slab_handles {
  std::vector<local::slab_descriptor> slabs;
  std::vector<unique_fd> fds;
};

/// What `status` shows of a session beside the tier's view.
struct session_report {
  session_ptr session;
  std::uint64_t batches = 0;
  std::uint64_t entries = 0;
};

/// The DRAM tier's store, and how long its actor was busy with batches.
struct dram_report {
  blocks::store_status store;
  histogram batch_times;     ///< nanoseconds
  std::uint64_t queued = 0;  ///< messages that wait for the tier
};

/// Requests of watched instances, on their way to estimates.
struct watched_batch {
  std::vector<blocks::watched_request> requests;
  std::uint64_t blocks = 0;  ///< of all of them
};

/// Watched requests for a recorder, at most so many as an answer holds.
struct recorded_batch {
  outcome status;
  std::uint64_t recording = 0;  ///< its number
  std::vector<blocks::watched_request> requests;
  std::vector<std::uint64_t> times_ns;  ///< of each, since the recording began
  std::uint64_t dropped = 0;            ///< requests since it began that came too fast
  bool has_more = false;                ///< others wait already
};

struct watch_figures {
  std::uint64_t dropped = 0;  ///< requests that no curve has
};

/// Estimates for the instances that a DRAM tier's report names.
struct curves_report {
  std::vector<blocks::curve_status> curves;
  watch_figures figures;
};

struct prefetch_report : prefetch::status {
  histogram load_times;  ///< of prefetches with loads, nanoseconds
};

struct node_report {
  blocks::store_status dram;  ///< curves of its instances are filled in
  watch_figures watch;
  histogram batch_times;  ///< of the DRAM tier, nanoseconds
  prefetch_report prefetch;
  std::vector<std::shared_ptr<const tier_report>> lower;  ///< of the tiers below, in their order
  std::shared_ptr<const tier_report> cluster;             ///< null: the node is alone
  std::shared_ptr<const tier_report> groups;              ///< of ranks
  std::shared_ptr<const tier_report> devices;             ///< null: there is no GPU tier
  std::vector<session_report> sessions;
  std::uint64_t queued = 0;  ///< messages that wait for node and tiers

  /// Those that there are, of tiers below, the cluster and groups of ranks.
  [[nodiscard]] std::vector<std::shared_ptr<const tier_report>> described() const {
    auto all = lower;
    all.push_back(devices);
    all.push_back(cluster);
    all.push_back(groups);
    std::erase(all, nullptr);
    return all;
  }
};

/// The prefetch requests of one session's batch, and who gets the answers. Its receiver takes the requests.
struct prefetch_batch {
  caf::strong_actor_ptr session;
  std::vector<prefetch::request> requests;
};

struct device_news;

using batch_ptr = std::shared_ptr<blocks::batch>;
using new_instance_ptr = std::shared_ptr<new_instance>;
using instance_request_ptr = std::shared_ptr<const instance_request>;
using slab_outcome_ptr = std::shared_ptr<blocks::slab_outcome>;
using slab_handles_ptr = std::shared_ptr<slab_handles>;
using slab_places_ptr = std::shared_ptr<const std::vector<memory::slab_place>>;
using opened_instance_ptr = std::shared_ptr<opened_instance>;
using config_ptr = std::shared_ptr<const config::node_config>;
using report_ptr = std::shared_ptr<node_report>;
using dram_report_ptr = std::shared_ptr<const dram_report>;
using held_ptr = std::shared_ptr<const std::vector<local::held_block>>;  ///< null: the client does not know yet
using instance_binding_ptr = std::shared_ptr<blocks::instance_binding>;
using transfers_ptr = std::shared_ptr<const std::vector<transfer>>;
using transfer_outcomes_ptr = std::shared_ptr<const std::vector<transfer_outcome>>;
using lost_blocks_ptr = std::shared_ptr<const std::vector<lost_block>>;
using key_query_ptr = std::shared_ptr<const key_query>;
using key_answer_ptr = std::shared_ptr<const key_answer>;
using removals_ptr = std::shared_ptr<const std::vector<blocks::removal>>;
using completions_ptr = std::shared_ptr<const std::vector<memory::completion>>;
using prefetch_batch_ptr = std::shared_ptr<prefetch_batch>;
using prefetch_commands_ptr = std::shared_ptr<const std::vector<prefetch::command>>;
using prefetch_results_ptr = std::shared_ptr<const std::vector<prefetch::command_result>>;
using prefetch_report_ptr = std::shared_ptr<const prefetch_report>;
using index_list = std::vector<std::uint32_t>;
using handover_order_ptr = std::shared_ptr<const handover::order>;
using handover_news_ptr = std::shared_ptr<const handover::news>;
using device_news_ptr = std::shared_ptr<const device_news>;
using watched_ptr = std::shared_ptr<const watched_batch>;
using curves_report_ptr = std::shared_ptr<const curves_report>;
using recorded_ptr = std::shared_ptr<const recorded_batch>;
using change_question_ptr = std::shared_ptr<const change_question>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote, first_custom_type_id)

CAF_ADD_TYPE_ID(cenote, (cenote::outcome))
CAF_ADD_TYPE_ID(cenote, (cenote::session_report))
CAF_ADD_TYPE_ID(cenote, (cenote::session_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::batch_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::new_instance_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::instance_request_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::slab_outcome_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::slab_handles_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::opened_instance_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::config_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::report_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::dram_report_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::held_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::index_list))
CAF_ADD_TYPE_ID(cenote, (cenote::instance_binding_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::transfers_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::transfer_outcomes_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::lost_blocks_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::key_query_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::key_answer_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::removals_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::tier_report_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::completions_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::prefetch_batch_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::prefetch_commands_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::prefetch_results_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::prefetch_report_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::slab_places_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::handover_order_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::handover_news_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::device_news_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::change_question_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::watched_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::curves_report_ptr))
CAF_ADD_TYPE_ID(cenote, (cenote::recorded_ptr))

CAF_ADD_ATOM(cenote, cenote, run_atom, "run")
CAF_ADD_ATOM(cenote, cenote, open_instance_atom, "instance")
CAF_ADD_ATOM(cenote, cenote, make_instance_atom, "make")
CAF_ADD_ATOM(cenote, cenote, discard_instance_atom, "discard")
CAF_ADD_ATOM(cenote, cenote, open_atom, "open_s")
CAF_ADD_ATOM(cenote, cenote, release_atom, "release")
CAF_ADD_ATOM(cenote, cenote, disconnect_atom, "disconnect")
CAF_ADD_ATOM(cenote, cenote, reattach_atom, "reattach")
CAF_ADD_ATOM(cenote, cenote, slab_atom, "slab")
CAF_ADD_ATOM(cenote, cenote, handles_atom, "handles")
CAF_ADD_ATOM(cenote, cenote, report_atom, "report")
CAF_ADD_ATOM(cenote, cenote, clear_atom, "clear_s")
CAF_ADD_ATOM(cenote, cenote, corrupt_atom, "corrupt")
CAF_ADD_ATOM(cenote, cenote, reload_atom, "reload")
CAF_ADD_ATOM(cenote, cenote, tick_atom, "tier_tick")
CAF_ADD_ATOM(cenote, cenote, evict_atom, "evict")
CAF_ADD_ATOM(cenote, cenote, turn_atom, "turn")
CAF_ADD_ATOM(cenote, cenote, doorbell_atom, "doorbell")
CAF_ADD_ATOM(cenote, cenote, drain_atom, "drain")
CAF_ADD_ATOM(cenote, cenote, ready_atom, "ready_s")
CAF_ADD_ATOM(cenote, cenote, register_planner_atom, "register")
CAF_ADD_ATOM(cenote, cenote, above_atom, "above")
CAF_ADD_ATOM(cenote, cenote, bind_atom, "bind")
CAF_ADD_ATOM(cenote, cenote, unbind_atom, "unbind")
CAF_ADD_ATOM(cenote, cenote, write_atom, "write_b")
CAF_ADD_ATOM(cenote, cenote, fetch_atom, "fetch_b")
CAF_ADD_ATOM(cenote, cenote, locate_atom, "locate")
CAF_ADD_ATOM(cenote, cenote, forget_atom, "forget")
CAF_ADD_ATOM(cenote, cenote, transfers_done_atom, "transfers")
CAF_ADD_ATOM(cenote, cenote, copies_lost_atom, "copieslost")
CAF_ADD_ATOM(cenote, cenote, drained_atom, "drained")
CAF_ADD_ATOM(cenote, cenote, standing_atom, "standing")
CAF_ADD_ATOM(cenote, cenote, answer_atom, "answer")
CAF_ADD_ATOM(cenote, cenote, prefetch_request_atom, "prefetch")
CAF_ADD_ATOM(cenote, cenote, command_atom, "command")
CAF_ADD_ATOM(cenote, cenote, command_results_atom, "results")
CAF_ADD_ATOM(cenote, cenote, space_available_atom, "space")
CAF_ADD_ATOM(cenote, cenote, wake_atom, "wake")
CAF_ADD_ATOM(cenote, cenote, places_atom, "places")
CAF_ADD_ATOM(cenote, cenote, hand_on_atom, "hand_on")
CAF_ADD_ATOM(cenote, cenote, last_writes_atom, "last_write")
CAF_ADD_ATOM(cenote, cenote, follow_atom, "follow")
CAF_ADD_ATOM(cenote, cenote, news_atom, "news")
CAF_ADD_ATOM(cenote, cenote, hear_removals_atom, "hear")
CAF_ADD_ATOM(cenote, cenote, removed_atom, "removed")
CAF_ADD_ATOM(cenote, cenote, add_tier_atom, "add_tier")
CAF_ADD_ATOM(cenote, cenote, cleared_atom, "cleared")
CAF_ADD_ATOM(cenote, cenote, clear_node_atom, "clear_n")
CAF_ADD_ATOM(cenote, cenote, changes_atom, "changes")
CAF_ADD_ATOM(cenote, cenote, watched_atom, "watched")
CAF_ADD_ATOM(cenote, cenote, record_atom, "record")
CAF_ADD_ATOM(cenote, cenote, quota_atom, "quota")
CAF_ADD_ATOM(cenote, cenote, end_record_atom, "end_rec")

CAF_END_TYPE_ID_BLOCK(cenote)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::session_report)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::session_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::batch_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::new_instance_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::instance_request_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::slab_outcome_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::slab_handles_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::opened_instance_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::config_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::report_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::dram_report_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::held_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::instance_binding_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::transfers_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::transfer_outcomes_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::lost_blocks_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::key_query_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::key_answer_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::removals_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::tier_report_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::completions_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::prefetch_batch_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::prefetch_commands_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::prefetch_results_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::prefetch_report_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::slab_places_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::handover_order_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::handover_news_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::device_news_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::change_question_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::watched_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::curves_report_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::recorded_ptr)

namespace cenote {

/// Said by a lower tier to the block tier above it, which may have several below: `edge_number` says which one speaks.
///
///   transfers_done   transfers that ended: every token exactly once
///   copies_lost      blocks that left the lower tier by themselves
///   drained          no transfer of an earlier worker can land in memory any more; false: nobody will ever know
///   standing         whether it takes and gives anything from now on; until it says so, a tier does
///   cleared          instances that another node has cleared outside this machine: answered when the block tier and
///                    all tiers of this machine have nothing of before
using upper_tier_actor = caf::typed_actor<caf::reacts_to<transfers_done_atom, transfer_outcomes_ptr>,
                                          caf::reacts_to<copies_lost_atom, blocks::edge_number, lost_blocks_ptr>,
                                          caf::reacts_to<drained_atom, blocks::edge_number, bool>,
                                          caf::reacts_to<standing_atom, blocks::edge_number, bool>,
                                          caf::replies_to<cleared_atom, index_list>::with<outcome>>;

/// A tier below a block tier. It blocks nobody: what it cannot do in time it drops.
///
///   above     comes first, from the block tier itself: which of the tiers below it this one is
///   bind      an instance that attached; with an index where the tier keeps its hints, if it is the one that has some
///   unbind    it was given up: its blocks stay, and are bound again with the next attach
///   write     blocks to take: their memory is the tier's until `transfers_done` names the token
///   fetch     memory to fill with what was written under the key, if those bytes are right; the same
///   locate    which of these keys it has; answered within the question's patience, and what is not known by then is
///   not
///             there. Nothing is promised: the block may go before it is fetched
///   forget    answered when nothing brings the blocks back, or with an error that says what may; `invalid_argument`:
///             no instance of the name that is all that was asked for is known here
using lower_tier_actor = caf::typed_actor<
    caf::reacts_to<above_atom, blocks::edge_number>, caf::reacts_to<bind_atom, instance_binding_ptr>,
    caf::reacts_to<unbind_atom, std::uint32_t>, caf::reacts_to<write_atom, transfers_ptr>,
    caf::reacts_to<fetch_atom, transfers_ptr>, caf::replies_to<locate_atom, key_query_ptr>::with<key_answer_ptr>,
    caf::replies_to<forget_atom, removals_ptr>::with<outcome>, caf::replies_to<report_atom>::with<tier_report_ptr>,
    caf::reacts_to<tick_atom>, caf::reacts_to<reload_atom, config_ptr>>;

/// Hears of what a block tier forgets, before whoever asked for it has his answer: a tier above, which has copies. The
/// same removals as tiers below hear of; it answers when it has none of these blocks any more, and writes none of them
/// down.
using removal_listener = caf::typed_actor<caf::replies_to<removed_atom, removals_ptr>::with<outcome>>;

/// A tier as those know it who watch it and speak of it.
struct lower_tier {
  std::string name;  ///< "the … tier"
  lower_tier_actor actor;
  std::chrono::milliseconds tick_interval{1000};  ///< how often it wants a `tick`
};

/// The DRAM tier: see actors/dram_tier.hpp.
using dram_tier_actor = upper_tier_actor::extend<
    caf::replies_to<run_atom, batch_ptr>::with<batch_ptr>,
    caf::replies_to<open_instance_atom, instance_request_ptr>::with<opened_instance_ptr>,
    caf::replies_to<open_atom, session_ptr>::with<outcome>, caf::replies_to<release_atom, std::uint64_t>::with<outcome>,
    caf::replies_to<reattach_atom, std::uint64_t, held_ptr>::with<outcome>,
    caf::replies_to<handles_atom, std::uint32_t, index_list>::with<slab_handles_ptr>,
    caf::replies_to<places_atom, std::uint32_t, index_list>::with<slab_places_ptr>,
    caf::replies_to<report_atom>::with<dram_report_ptr>, caf::replies_to<clear_atom, std::string>::with<outcome>,
    caf::replies_to<clear_node_atom>::with<outcome>, caf::replies_to<corrupt_atom>::with<outcome>,
    caf::replies_to<hand_on_atom, caf::timespan>::with<outcome>,
    caf::replies_to<last_writes_atom, caf::timespan>::with<outcome>, caf::reacts_to<disconnect_atom, std::uint64_t>,
    caf::reacts_to<slab_atom, slab_outcome_ptr>, caf::reacts_to<reload_atom, config_ptr>, caf::reacts_to<evict_atom>,
    caf::reacts_to<turn_atom>, caf::reacts_to<tick_atom>, caf::reacts_to<register_planner_atom>,
    caf::reacts_to<command_atom, prefetch_commands_ptr>, caf::reacts_to<follow_atom, handover_order_ptr>,
    caf::replies_to<hear_removals_atom, removal_listener, bool>::with<outcome>,
    caf::replies_to<removed_atom, removals_ptr>::with<outcome>, caf::reacts_to<changes_atom, change_question_ptr>,
    caf::reacts_to<record_atom, caf::timespan>, caf::reacts_to<quota_atom, std::string, std::uint64_t>>;

/// Makes instances for the DRAM tier: see actors/instance_maker.hpp.
using instance_maker_actor =
    caf::typed_actor<caf::replies_to<make_instance_atom, instance_request_ptr>::with<new_instance_ptr>,
                     caf::reacts_to<discard_instance_atom, blocks::instance_number>>;

/// Prefetches: see actors/prefetch.hpp.
using prefetch_actor =
    caf::typed_actor<caf::reacts_to<prefetch_request_atom, prefetch_batch_ptr>,
                     caf::reacts_to<command_results_atom, prefetch_results_ptr>,
                     caf::reacts_to<transfers_done_atom, transfer_outcomes_ptr>, caf::reacts_to<space_available_atom>,
                     caf::reacts_to<disconnect_atom, std::uint64_t>, caf::reacts_to<wake_atom, std::uint64_t>,
                     caf::reacts_to<news_atom, handover_news_ptr>, caf::reacts_to<reload_atom, config_ptr>,
                     caf::replies_to<report_atom>::with<prefetch_report_ptr>>;

/// Estimates from watched requests: see actors/live_curves.hpp. Asked with the DRAM tier's report, so that what the
/// tier passed on before it is in the answer.
///
///   record      begins a recording; of its number: the requests since the last time
///   end_record  of that number
using live_curves_actor = caf::typed_actor<
    caf::reacts_to<watched_atom, watched_ptr>, caf::replies_to<report_atom, dram_report_ptr>::with<curves_report_ptr>,
    caf::replies_to<record_atom>::with<recorded_ptr>, caf::replies_to<record_atom, std::uint64_t>::with<recorded_ptr>,
    caf::reacts_to<end_record_atom, std::uint64_t>>;

/// See actors/quota_mover.hpp.
using quota_mover_actor = caf::typed_actor<caf::reacts_to<tick_atom>, caf::reacts_to<reload_atom, config_ptr>>;

/// How a device's tier is doing.
enum class device_phase : std::uint8_t { opening, ready, away };
CENOTE_ENUM_NAMES(device_phase, opening, ready, away);

/// The actors of one device's tier.
struct device_stack {
  dram_tier_actor top;
  lower_tier below;  ///< the way to DRAM
  prefetch_actor planner;
};

/// What became of a device's tier.
struct device_news {
  tier_number tier = 0;
  std::string device;  ///< as core/device_spec.hpp names it
  device_phase phase = device_phase::opening;
  std::string why{};                    ///< away: the reason
  std::optional<device_stack> stack{};  ///< it is ready since now
};

/// One attached process: see actors/session.hpp.
using session_actor =
    caf::typed_actor<caf::reacts_to<doorbell_atom>, caf::reacts_to<wake_atom, std::uint64_t>,
                     caf::reacts_to<answer_atom, completions_ptr>, caf::replies_to<report_atom>::with<session_report>,
                     caf::replies_to<drain_atom>::with<outcome>>;

/// The supervisor: see actors/node.hpp.
using node_actor =
    caf::typed_actor<caf::replies_to<open_atom, session_ptr>::with<session_actor>,
                     caf::replies_to<release_atom, std::uint64_t>::with<outcome>,
                     caf::replies_to<report_atom>::with<report_ptr>, caf::replies_to<drain_atom>::with<outcome>,
                     caf::reacts_to<reload_atom, config_ptr>, caf::reacts_to<add_tier_atom, device_news_ptr>>;

}  // namespace cenote
