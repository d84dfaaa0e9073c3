#include "actors/peer.hpp"

#include <utility>

namespace cenote {

namespace {

constexpr std::chrono::milliseconds between_deadlines{100};

caf::error not_reachable(const char* why) {
  return caf::make_error(caf::sec::request_receiver_down, why);
}

}  // namespace

void peer_proxy::on_exit() {
  requests_.clear();  // their promises answer with an error
  cluster_ = nullptr;
}

peer_proxy::behavior_type peer_proxy::make_behavior() {
  return {
      [this](link_atom, std::uint64_t link) { use_link(link); },
      [this](frame_atom, const node_frame_ptr& frame) { take_frame(*frame); },
      [this](look_atom, std::uint64_t number) {
        if (alarm_.take(this, number, clock_())) end_overdue();
      },
      [this](ping_atom, const payload_ptr& payload) { return ping(payload); },
  };
}

caf::result<payload_ptr> peer_proxy::ping(const payload_ptr& payload) {
  if (link_ == 0) return not_reachable("the node is not there");
  if (payload->size() > peer::longest_payload) return caf::make_error(caf::sec::invalid_argument, "too long");
  if (requests_.size() >= most_requests) return not_reachable("too many requests wait for the node");
  auto promise = make_response_promise<payload_ptr>();
  const std::uint64_t number = next_request_++;
  requests_.emplace(number, open_request{promise_guard<payload_ptr>(promise), clock_() + request_limit});
  counts_->requests.fetch_add(1, std::memory_order_relaxed);
  send_frame(peer::frame_type::ping, number, *payload);
  look_later();
  return promise;
}

void peer_proxy::send_frame(peer::frame_type type, std::uint64_t request, std::vector<std::byte> body) {
  send(cluster_, frame_atom_v, link_, std::make_shared<const node_frame>(type, request, std::move(body)));
}

void peer_proxy::take_frame(const node_frame& frame) {
  if (frame.type == peer::frame_type::ping && frame.body.size() <= peer::longest_payload) {
    send_frame(peer::frame_type::pong, frame.request, frame.body);
  } else if (frame.type == peer::frame_type::pong) {
    const auto found = requests_.find(frame.request);
    if (found == requests_.end()) return;  // it comes too late
    found->second.promise.deliver(std::make_shared<const std::vector<std::byte>>(frame.body));
    requests_.erase(found);
  }
}

/// What was asked on another link has no answer any more.
void peer_proxy::use_link(peer::link_id link) {
  if (link == link_) return;
  link_ = link;
  counts_->overdue.fetch_add(requests_.size(), std::memory_order_relaxed);
  requests_.clear();
}

void peer_proxy::end_overdue() {
  const auto now = clock_();
  while (!requests_.empty() && requests_.begin()->second.until <= now) {
    counts_->overdue.fetch_add(1, std::memory_order_relaxed);
    requests_.erase(requests_.begin());
  }
  look_later();
}

void peer_proxy::look_later() {
  if (requests_.empty() || alarm_.is_set()) return;
  const auto now = clock_();
  alarm_.set(this, now + between_deadlines, now);
}

}  // namespace cenote
