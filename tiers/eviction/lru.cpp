#include "tiers/eviction/lru.hpp"

#include <string>

namespace cenote::eviction {

void lru::admit(std::uint32_t block, std::uint32_t /*now*/) {
  push_front(block);
  ++size_;
}

void lru::touch(std::uint32_t block, std::uint32_t /*now*/) {
  if (head_ == block) return;
  unlink(block);
  push_front(block);
}

void lru::forget(std::uint32_t block) {
  unlink(block);
  --size_;
}

std::optional<std::uint32_t> lru::victim() const {
  if (tail_ == block_links::none) return std::nullopt;
  return tail_;
}

void lru::unlink(std::uint32_t block) noexcept {
  const block_links::link link = links_[block];
  (link.previous == block_links::none ? head_ : links_[link.previous].next) = link.next;
  (link.next == block_links::none ? tail_ : links_[link.next].previous) = link.previous;
}

void lru::push_front(std::uint32_t block) noexcept {
  links_[block] = {block_links::none, head_};
  (head_ == block_links::none ? tail_ : links_[head_].previous) = block;
  head_ = block;
}

result<std::unique_ptr<policy>> make_policy(std::string_view name, block_links& links) {
  if (name == "lru") return std::make_unique<lru>(links);
  return fail(error_code::invalid_config, "unknown eviction policy `" + std::string(name) + "`; known: lru");
}

}  // namespace cenote::eviction
