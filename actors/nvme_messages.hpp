// What the NVMe tier and its devices say beside what every lower tier says.
#pragma once

#include "actors/messages.hpp"
#include "tiers/nvme/devices.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote {

struct io_done {
  std::uint32_t path = 0;
  std::vector<nvme::io_completion> completions;
};

/// What became of a path's share of a save.
struct save_report {
  std::uint32_t path = 0;
  std::uint64_t tag = 0;
  nvme::save_status how;
};

using opened_path_ptr = std::shared_ptr<nvme::opened_path>;
using save_report_ptr = std::shared_ptr<const save_report>;
using io_done_ptr = std::shared_ptr<const io_done>;

}  // namespace cenote

CAF_BEGIN_TYPE_ID_BLOCK(cenote_nvme, first_custom_type_id + 200)

CAF_ADD_TYPE_ID(cenote_nvme, (cenote::opened_path_ptr))
CAF_ADD_TYPE_ID(cenote_nvme, (cenote::io_done_ptr))
CAF_ADD_TYPE_ID(cenote_nvme, (cenote::save_report_ptr))

CAF_ADD_ATOM(cenote_nvme, cenote, path_atom, "path")
CAF_ADD_ATOM(cenote_nvme, cenote, io_atom, "io_done")
CAF_ADD_ATOM(cenote_nvme, cenote, catalog_saved_atom, "saved")
CAF_ADD_ATOM(cenote_nvme, cenote, broke_atom, "broke")

CAF_END_TYPE_ID_BLOCK(cenote_nvme)

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::opened_path_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::io_done_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(cenote::save_report_ptr)

namespace cenote {

/// The NVMe tier: see actors/nvme_tier.hpp.
using nvme_tier_actor =
    lower_tier_actor::extend<caf::reacts_to<path_atom, opened_path_ptr>, caf::reacts_to<io_atom, io_done_ptr>,
                             caf::reacts_to<catalog_saved_atom, save_report_ptr>,
                             caf::reacts_to<broke_atom, std::uint32_t, std::string>,
                             caf::reacts_to<changes_atom, change_question_ptr>>;

}  // namespace cenote
