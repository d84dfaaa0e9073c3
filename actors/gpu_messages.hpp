// What runs in the context of an actor of the GPU tier: ends of a device's work, answers of the tier below.
#pragma once

#include <caf/all.hpp>

#include <functional>
#include <memory>

#include "actors/messages.hpp"

namespace cenote {

/// Called once, by the actor that it is sent to.
using gpu_task_ptr = std::shared_ptr<std::function<void()>>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote_gpu, first_custom_type_id + 480)

CAF_ADD_TYPE_ID(cenote_gpu, (cenote::gpu_task_ptr))

CAF_ADD_ATOM(cenote_gpu, cenote, gpu_task_atom, "gpu_task")

CAF_END_TYPE_ID_BLOCK(cenote_gpu)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::gpu_task_ptr)

namespace cenote {

/// The way from a device's tier to DRAM: see actors/dram_below.hpp. Converts to lower_tier_actor and removal_listener.
using dram_below_actor = lower_tier_actor::extend<caf::replies_to<removed_atom, removals_ptr>::with<outcome>,
                                                  caf::reacts_to<gpu_task_atom, gpu_task_ptr>>;

}  // namespace cenote
