#include "device/device.hpp"

#include <future>
#include <memory>
#include <utility>

namespace cenote {

result<void> await(device& on, const event_ref& event, std::chrono::nanoseconds limit) {
  auto promised = std::make_shared<std::promise<result<void>>>();
  auto answer = promised->get_future();
  on.when(event, [promised](result<void> how) { promised->set_value(std::move(how)); });
  if (answer.wait_for(limit) != std::future_status::ready) {
    return fail(error_code::deadline_exceeded, "the device's event is still pending");
  }
  return answer.get();
}

}  // namespace cenote
