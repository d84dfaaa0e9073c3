// Frames are closed exactly once, whatever is moved.
#include "transport/zmq/message.hpp"

#include <cstring>
#include <utility>

namespace cenote::zmq {

namespace {

zmq_msg_t* unconst(const zmq_msg_t* message) noexcept {  // calls that only read take it without const
  return const_cast<zmq_msg_t*>(message);
}

}  // namespace

message_part::message_part(message_part&& other) noexcept {
  ::zmq_msg_init(&message_);
  ::zmq_msg_move(&message_, &other.message_);
}

message_part& message_part::operator=(message_part&& other) noexcept {
  if (this != &other) ::zmq_msg_move(&message_, &other.message_);
  return *this;
}

void message_part::clear() noexcept {
  ::zmq_msg_close(&message_);
  ::zmq_msg_init(&message_);
}

std::span<const std::byte> message_part::bytes() const noexcept {
  return {static_cast<const std::byte*>(::zmq_msg_data(unconst(&message_))), size()};
}

std::string_view message_part::text() const noexcept {
  return {static_cast<const char*>(::zmq_msg_data(unconst(&message_))), size()};
}

std::optional<int> message_part::connection() const noexcept {
  const int descriptor = ::zmq_msg_get(&message_, ZMQ_SRCFD);
  return descriptor < 0 ? std::nullopt : std::optional(descriptor);
}

shared_part share(message_part&& part) {
  const std::size_t size = part.size();
  if (size == 0) return {};
  if (size <= copied_part_bytes) {
    auto copy = std::make_shared_for_overwrite<std::byte[]>(size);
    std::memcpy(copy.get(), part.bytes().data(), size);
    const std::span<const std::byte> bytes(copy.get(), size);
    return {.bytes = bytes, .owner = std::move(copy)};
  }
  auto owner = std::make_shared<message_part>(std::move(part));
  const std::span<const std::byte> bytes = owner->bytes();
  return {.bytes = bytes, .owner = std::move(owner)};
}

void multipart_message::clear() noexcept {
  for (std::size_t i = 0; i < size_; ++i) parts_[i].clear();
  if (is_cut_) parts_[longest].clear();
  size_ = 0;
  is_cut_ = false;
}

message_part& multipart_message::append() noexcept {
  if (size_ < longest) return parts_[size_++];
  is_cut_ = true;
  return parts_[longest];
}

}  // namespace cenote::zmq
