// What is said to the actor of groups of ranks, and by it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "cluster/agreement.hpp"

namespace cenote {

/// Requests of one session about groups of ranks, whole ones. Each is answered once.
struct group_requests {
  session_ptr session;
  caf::strong_actor_ptr answers_to;
  std::vector<memory::submission> entries;
};

/// The other nodes that are live, and who speaks to them.
struct group_members {
  caf::strong_actor_ptr cluster;
  std::vector<cluster::live_node> live;
};

/// A frame of another node about groups of ranks.
struct group_frame {
  std::string from;
  std::uint64_t link = 0;
  peer::incarnation born{};
  peer::frame_type type{};
  std::vector<std::byte> body;
};

/// What is to be sent to other nodes.
struct group_sayings {
  std::vector<cluster::agreement_frame> frames;
  std::uint64_t bad_link = 0;  ///< to be closed, since it carried nonsense; 0: none
  std::string why;
};

using group_requests_ptr = std::shared_ptr<const group_requests>;
using group_members_ptr = std::shared_ptr<const group_members>;
using group_frame_ptr = std::shared_ptr<const group_frame>;
using group_sayings_ptr = std::shared_ptr<const group_sayings>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote_consensus, first_custom_type_id + 340)

CAF_ADD_TYPE_ID(cenote_consensus, (cenote::group_requests_ptr))
CAF_ADD_TYPE_ID(cenote_consensus, (cenote::group_members_ptr))
CAF_ADD_TYPE_ID(cenote_consensus, (cenote::group_frame_ptr))
CAF_ADD_TYPE_ID(cenote_consensus, (cenote::group_sayings_ptr))

CAF_ADD_ATOM(cenote_consensus, cenote, group_requests_atom, "g_asks")
CAF_ADD_ATOM(cenote_consensus, cenote, group_members_atom, "g_live")
CAF_ADD_ATOM(cenote_consensus, cenote, group_frame_atom, "g_frame")
CAF_ADD_ATOM(cenote_consensus, cenote, group_sayings_atom, "g_says")

CAF_END_TYPE_ID_BLOCK(cenote_consensus)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::group_requests_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::group_members_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::group_frame_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::group_sayings_ptr)

namespace cenote {

/// The groups of ranks: see actors/consensus.hpp.
using consensus_actor = caf::typed_actor<
    caf::reacts_to<group_requests_atom, group_requests_ptr>, caf::reacts_to<disconnect_atom, std::uint64_t>,
    caf::reacts_to<group_members_atom, group_members_ptr>, caf::reacts_to<group_frame_atom, group_frame_ptr>,
    caf::reacts_to<wake_atom, std::uint64_t>, caf::replies_to<report_atom>::with<tier_report_ptr>>;

}  // namespace cenote
