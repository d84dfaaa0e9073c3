// What the remote tier and its backends' threads say beside what every lower tier says.
#pragma once

#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/store.hpp"

namespace cenote {

/// Transfers of a backend that ended.
struct remote_outcomes {
  remote::backend_number from = 0;
  remote::call::kind what = remote::call::kind::put;
  std::vector<remote::item_outcome> outcomes;
};

/// A backend answers from now on, or does not, and why.
struct remote_standing {
  remote::backend_number of = 0;
  result<void> how;
};

/// Another node has cleared an instance at a backend.
struct remote_clear {
  remote::backend_number backend = 0;
  instance_identity identity{};
};

/// A backend's part of the answer to a question.
struct remote_presence {
  std::uint64_t question = 0;
  remote::backend_number from = 0;
  remote::presence held;
};

/// A backend's part of the answer to a removal.
struct remote_removal {
  std::uint64_t removal = 0;
  remote::backend_number from = 0;
  result<std::uint64_t> removed;
};

using remote_outcomes_ptr = std::shared_ptr<const remote_outcomes>;
using remote_standing_ptr = std::shared_ptr<const remote_standing>;
using remote_clear_ptr = std::shared_ptr<const remote_clear>;
using remote_presence_ptr = std::shared_ptr<const remote_presence>;
using remote_removal_ptr = std::shared_ptr<const remote_removal>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote_remote, first_custom_type_id + 240)

CAF_ADD_TYPE_ID(cenote_remote, (cenote::remote_outcomes_ptr))
CAF_ADD_TYPE_ID(cenote_remote, (cenote::remote_standing_ptr))
CAF_ADD_TYPE_ID(cenote_remote, (cenote::remote_clear_ptr))
CAF_ADD_TYPE_ID(cenote_remote, (cenote::remote_presence_ptr))
CAF_ADD_TYPE_ID(cenote_remote, (cenote::remote_removal_ptr))

CAF_ADD_ATOM(cenote_remote, cenote, remote_moved_atom, "r_moved")
CAF_ADD_ATOM(cenote_remote, cenote, remote_standing_atom, "r_standing")
CAF_ADD_ATOM(cenote_remote, cenote, remote_clear_atom, "r_clear")
CAF_ADD_ATOM(cenote_remote, cenote, remote_presence_atom, "r_presence")
CAF_ADD_ATOM(cenote_remote, cenote, remote_removal_atom, "r_removal")

CAF_END_TYPE_ID_BLOCK(cenote_remote)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::remote_outcomes_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::remote_standing_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::remote_clear_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::remote_presence_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::remote_removal_ptr)

namespace cenote {

/// The remote tier: see actors/remote_tier.hpp.
using remote_tier_actor = lower_tier_actor::extend<
    caf::reacts_to<remote_moved_atom, remote_outcomes_ptr>, caf::reacts_to<remote_standing_atom, remote_standing_ptr>,
    caf::reacts_to<remote_clear_atom, remote_clear_ptr>, caf::reacts_to<remote_presence_atom, remote_presence_ptr>,
    caf::reacts_to<remote_removal_atom, remote_removal_ptr>>;

}  // namespace cenote
