#include "actors/instance_maker.hpp"

#include <pthread.h>

#include <array>
#include <exception>
#include <memory>
#include <utility>

#include "config/logging.hpp"
#include "core/byte_io.hpp"
#include "memory/instance_memory.hpp"
#include "memory/store_point.hpp"

namespace cenote {

instance_maker::behavior_type instance_maker::make_behavior() {
  if (getf(caf::abstract_actor::is_detached_flag)) ::pthread_setname_np(::pthread_self(), "cenote-instance");
  return {
      [this](make_instance_atom, const instance_request_ptr& request) {
        auto made = std::make_shared<new_instance>();
        try {
          made->status = outcome::of(make(*request, *made));
        } catch (const std::exception& thrown) {  // it ends this instance, and not all that come later
          made->status = {error_code::internal, thrown.what(), 0};
        }
        return made;
      },
      [this](discard_instance_atom, blocks::instance_number number) {
        if (const auto dropped = keeper_.drop(number); !dropped) {
          log_warn(logger("dram"), "the keeper did not drop an instance", {{"reason", dropped.error().describe()}});
        }
      },
  };
}

result<void> instance_maker::make(const instance_request& request, new_instance& made) {
  if (next_ > last_) {  // the next number would be another one's
    return fail(error_code::limit_exceeded, "the node has no numbers left for instances; restart it");
  }
  auto memory = memory::instance_memory::create(request.spec.id);
  if (!memory) return std::unexpected(memory.error());
  memory::passed("instance.created"_point);
  made.number = next_++;
  byte_writer meta;
  encode(meta, request.spec);
  meta.put(request.owner);
  if (request.share) {
    encode(meta, request.share->whole);
    meta.put(request.share->rank);
  }
  const std::array fds{memory->index.file().fd().get(), memory->versions.file().fd().get()};
  if (auto kept = keeper_.put(made.number, meta.bytes(), fds); !kept) {
    (void)keeper_.drop(made.number);  // it may have it, and only not have said so
    return kept;
  }
  made.memory = std::move(*memory);
  return {};
}

}  // namespace cenote
