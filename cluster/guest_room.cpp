#include "cluster/guest_room.hpp"

#include <utility>

#include "memory/lower_hints.hpp"

namespace cenote::cluster {

guest_session::guest_session(memory::index_memory its_index, memory::version_table its_versions,
                             memory::session_memory view)
    : index(std::move(its_index)),
      versions(std::move(its_versions)),
      slots(view.pin_slots()),
      lookup(memory::index_reader(index.tables), versions, view, slots, memory::hint_reader(index.hints)) {}

}  // namespace cenote::cluster
