// What a cluster's actors and the network's thread say to each other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/consensus_messages.hpp"
#include "actors/messages.hpp"
#include "cluster/membership.hpp"
#include "cluster/pool.hpp"
#include "transport/peer/network.hpp"

namespace cenote {

/// Something that the network said of a link, or of a name.
struct link_event {
  enum class kind : std::uint8_t { opened, closed, heard, carries_blocks, addresses };
  kind what{};
  peer::link_id link = 0;
  bool is_dialled = false;         ///< opened
  std::vector<std::byte> frame{};  ///< heard
  error why{error_code::ok, ""};   ///< closed
  endpoint name{};                 ///< addresses
  result<std::vector<endpoint>> addresses{};
};

/// Has `tell` called with what a network says of names, links and frames; what it says of blocks is left out.
[[nodiscard]] peer::network_events link_events(std::function<void(link_event)> tell);

/// The network that a cluster's actor speaks through, and who this node is on it.
struct cluster_start {
  std::shared_ptr<peer::network> network;  ///< none: there will be one later
  std::string why_not;                     ///< there is none yet
  cluster::identity self;
  cluster::membership_options options;
  std::function<cluster::steady_time()> clock = std::chrono::steady_clock::now;
  std::shared_ptr<cluster::pool> blocks{};  ///< whom frames about blocks are for; none: nobody
  consensus_actor groups{};                 ///< … about groups of ranks
};

/// A frame of another node, or for it, that is not about who is there.
struct node_frame {
  peer::frame_type type{};
  std::uint64_t request = 0;
  std::vector<std::byte> body;
};

/// An operator's order, for tests: frames between this node and another one are dropped.
struct partition_order {
  std::string other;
  bool drops_sent = false;
  bool drops_heard = false;
};

using link_event_ptr = std::shared_ptr<const link_event>;
using cluster_start_ptr = std::shared_ptr<const cluster_start>;
using node_frame_ptr = std::shared_ptr<const node_frame>;
using partition_order_ptr = std::shared_ptr<const partition_order>;
using payload_ptr = std::shared_ptr<const std::vector<std::byte>>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote_cluster, first_custom_type_id + 280)

CAF_ADD_TYPE_ID(cenote_cluster, (cenote::link_event_ptr))
CAF_ADD_TYPE_ID(cenote_cluster, (cenote::cluster_start_ptr))
CAF_ADD_TYPE_ID(cenote_cluster, (cenote::node_frame_ptr))
CAF_ADD_TYPE_ID(cenote_cluster, (cenote::partition_order_ptr))
CAF_ADD_TYPE_ID(cenote_cluster, (cenote::payload_ptr))

CAF_ADD_ATOM(cenote_cluster, cenote, link_atom, "c_link")
CAF_ADD_ATOM(cenote_cluster, cenote, begin_atom, "c_begin")
CAF_ADD_ATOM(cenote_cluster, cenote, look_atom, "c_look")
CAF_ADD_ATOM(cenote_cluster, cenote, frame_atom, "c_frame")
CAF_ADD_ATOM(cenote_cluster, cenote, ping_atom, "c_ping")
CAF_ADD_ATOM(cenote_cluster, cenote, partition_atom, "c_cut")
CAF_ADD_ATOM(cenote_cluster, cenote, leave_atom, "c_leave")
CAF_ADD_ATOM(cenote_cluster, cenote, weigh_atom, "c_weigh")

CAF_END_TYPE_ID_BLOCK(cenote_cluster)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::link_event_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::cluster_start_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::node_frame_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::partition_order_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::payload_ptr)

namespace cenote {

/// This node's place among others: see actors/cluster.hpp.
///
///   link        what the network heard, from its thread
///   begin       once: the network is there
///   look        it is time to (see membership::wake_at)
///   frame       from the actor of a node: send it on this link
///   ping        4096 bytes at most to the node of that name, and back; an error when it is not live or does not answer
///   partition   drops frames; what it drops is counted
///   weigh       whether blocks belong to this node from now on; all are told
///   group_sayings   frames about groups of ranks for other nodes
///   leave       says to all that this node stops; answered when it was said
using cluster_actor =
    caf::typed_actor<caf::reacts_to<link_atom, link_event_ptr>, caf::reacts_to<begin_atom, cluster_start_ptr>,
                     caf::reacts_to<look_atom, std::uint64_t>,
                     caf::reacts_to<frame_atom, std::uint64_t, node_frame_ptr>,
                     caf::reacts_to<group_sayings_atom, group_sayings_ptr>,
                     caf::replies_to<ping_atom, std::string, payload_ptr>::with<payload_ptr>,
                     caf::replies_to<partition_atom, partition_order_ptr>::with<outcome>,
                     caf::replies_to<weigh_atom, bool>::with<outcome>, caf::replies_to<leave_atom>::with<outcome>,
                     caf::replies_to<report_atom>::with<tier_report_ptr>>;

/// Another node, as this one speaks to it: see actors/peer.hpp.
///
///   link    by which it is reached now; 0: by none
///   frame   what it said
///   look    some request may be overdue
using peer_actor =
    caf::typed_actor<caf::reacts_to<link_atom, std::uint64_t>, caf::reacts_to<frame_atom, node_frame_ptr>,
                     caf::reacts_to<look_atom, std::uint64_t>,
                     caf::replies_to<ping_atom, payload_ptr>::with<payload_ptr>>;

}  // namespace cenote
