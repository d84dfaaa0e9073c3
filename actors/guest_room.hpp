// The block tier as guests use it, other nodes' and a device's tier: sessions that belong to no process.
#pragma once

#include <caf/all.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "cluster/guest_room.hpp"

namespace cenote {

/// What a guest asks of its actor.
struct guest_order {
  enum class kind : std::uint8_t { open, close, disconnect, run, find_slabs, clear_node };
  kind what{};
  std::uint64_t session = 0;
  std::uint32_t instance = 0;
  instance_spec spec{};
  std::vector<memory::submission> entries{};
  bool is_late = false;
  index_list slabs{};
  cluster::guest_room::then<result<cluster::guest_session_ptr>> opened{};
  cluster::guest_room::then<std::vector<memory::completion>> ran{};
  cluster::guest_room::then<std::vector<memory::slab_place>> found{};
  cluster::guest_room::then<result<std::uint64_t>> cleared{};
};
using guest_order_ptr = std::shared_ptr<const guest_order>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote_guest, first_custom_type_id + 320)
CAF_ADD_TYPE_ID(cenote_guest, (cenote::guest_order_ptr))
CAF_ADD_ATOM(cenote_guest, cenote, guest_atom, "g_order")
CAF_END_TYPE_ID_BLOCK(cenote_guest)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::guest_order_ptr)

namespace cenote {

/// See actors/guest_room.hpp: orders in their order, answers of prefetches when they come.
using guest_actor =
    caf::typed_actor<caf::reacts_to<guest_atom, guest_order_ptr>, caf::reacts_to<answer_atom, completions_ptr>>;

/// How an actor of guests is told apart from others.
struct guest_keeper_options {
  guest_numbers numbers{};
  bool is_of_others = true;  ///< guests of other nodes: tiers outside this machine have no part in what they do
  std::string log = "cluster";
};

/// Makes the sessions of guests and carries out what they submit. What it has to say it says on the guest's thread.
class guest_keeper final : public guest_actor::base {
 public:
  /// Runs something on the guest's thread; not at all once that has ended.
  using teller = std::function<void(std::function<void()>)>;

  guest_keeper(caf::actor_config& config, dram_tier_actor dram, std::uint64_t epoch, teller tell,
               guest_keeper_options options = {})
      : guest_actor::base(config),
        dram_(std::move(dram)),
        epoch_(epoch),
        tell_(std::move(tell)),
        options_(std::move(options)) {}

  [[nodiscard]] const char* name() const override { return "guest"; }
  void on_exit() override { dram_ = nullptr; }

 protected:
  behavior_type make_behavior() override;

 private:
  void open(const guest_order_ptr& order);
  void add(const guest_order_ptr& order, opened_instance& of);
  void enter(const guest_order_ptr& order, const std::shared_ptr<session_resources>& resources,
             const cluster::guest_session_ptr& session);
  void release(std::uint64_t session);
  [[nodiscard]] std::optional<std::uint64_t> next_session();
  void run(const guest_order_ptr& order);
  void clear_node(const guest_order_ptr& order);

  dram_tier_actor dram_;
  std::uint64_t epoch_;
  teller tell_;
  guest_keeper_options options_;
  std::uint32_t last_session_ = 0;
  std::set<std::uint64_t> sessions_;  ///< that the tier may have
  std::uint32_t next_request_ = 1;
  std::map<std::uint32_t, guest_order_ptr> late_;  ///< by their request's number
};

/// Hands a guest's orders to its actor. Thread-safe.
class guest_room final : public cluster::guest_room {
 public:
  explicit guest_room(std::function<void(guest_order_ptr)> to) : to_(std::move(to)) {}

  void open(const instance_spec& spec, then<result<cluster::guest_session_ptr>> done) override;
  void close(std::uint64_t session) override;
  void disconnect(std::uint64_t session) override;
  void run(std::uint64_t session, std::vector<memory::submission> entries, bool late,
           then<std::vector<memory::completion>> done) override;
  void find_slabs(std::uint32_t instance, std::vector<std::uint32_t> which,
                  then<std::vector<memory::slab_place>> done) override;
  void clear_node(then<result<std::uint64_t>> done) override;

 private:
  std::function<void(guest_order_ptr)> to_;
};

}  // namespace cenote
