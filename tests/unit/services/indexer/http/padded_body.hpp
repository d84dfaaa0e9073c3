// Bodies as the server shows them: with bytes behind their end that may be read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "transport/http/request_handler.hpp"

namespace cenote::indexer {

class padded_body {
 public:
  explicit padded_body(std::string_view text)
      : memory_(std::make_unique<std::byte[]>(text.size() + http::http_request::body_padding)), size_(text.size()) {
    std::ranges::transform(text, memory_.get(), [](char c) { return static_cast<std::byte>(c); });
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_;
};

}  // namespace cenote::indexer
