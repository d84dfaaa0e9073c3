// Answers with many locations, written as bytes of the wire or as JSON without messages.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/registry/terms.hpp"
#include "transport/manager/file_uri.hpp"

namespace cenote::manager {

/// The form of an answer: a message of gRPC, or JSON over HTTP.
enum class answer_form : std::uint8_t { wire, json };

/// The texts that are the same in all addresses of an instance in a storage. Immutable.
class storage_texts {
 public:
  struct spec_text {
    std::string wire_name{};   ///< the field `name`
    std::string json_begin{};  ///< up to the address
    uri_writer uri;
  };

  storage_texts(const instance_terms& instance, const storage_terms& storage);

  [[nodiscard]] const spec_text& operator[](std::size_t spec) const noexcept { return specs_[spec]; }
  [[nodiscard]] storage_type type() const noexcept { return type_; }
  /// Whether all addresses of two blocks of an extent differ in nothing but digits.
  [[nodiscard]] bool differ_in_digits(std::uint32_t first, std::uint32_t second) const noexcept {
    return !specs_.empty() && specs_.front().uri.differ_in_digits(first, second);  // it is the storage that decides
  }
  /// Bytes of the longest entry of a spec, in either form.
  [[nodiscard]] std::size_t longest() const noexcept { return longest_; }

 private:
  storage_type type_;
  std::size_t longest_ = 0;
  std::vector<spec_text> specs_;
};

/// Specs of a block in one place; without texts they are absent, and have names alone.
struct location_part {
  const storage_texts* texts = nullptr;
  block_address block{};
  std::uint64_t specs = 0;
  const std::uint64_t* checksums = nullptr;  ///< a mask of specs, and one for each of them; null: none
};

/// The checksum of a spec in such a list; 0: there is none.
[[nodiscard]] std::uint64_t checksum_at(const std::uint64_t* checksums, std::size_t spec) noexcept;

/// Appends locations to one list of an answer, in the form that the messages have (transport/manager/proto). Blocks
/// that lie side by side have addresses that differ in some digits: such a location is a copy of the one before it. Not
/// thread-safe.
class location_list {
 public:
  /// `field`: the list's number, `name`: its name in JSON.
  location_list(answer_form form, std::uint32_t field, std::string_view name, const instance_terms& instance,
                std::string& out);

  /// Room for `count` locations that are as long as the next one, so that the answer does not grow step by step.
  void reserve(std::size_t count) noexcept { reserve_count_ = count; }

  /// The parts have no spec in common.
  void add(std::span<const location_part> parts);
  /// `count` locations of specs that are absent.
  void add_absent(std::uint64_t specs, std::size_t count);
  /// Closes the list.
  void end();

 private:
  /// The last location, while it has one part.
  struct last_location {
    location_part part{};
    std::size_t bytes = 0;  ///< 0: there is none
  };

  [[nodiscard]] static std::size_t room_of(std::span<const location_part> parts) noexcept;
  [[nodiscard]] char* write_wire(std::span<const location_part> parts, char* out) noexcept;
  [[nodiscard]] char* write_json(std::span<const location_part> parts, char* out) noexcept;
  /// Makes room for `room` bytes more, and appends what `write` writes behind a pointer.
  template <class Write>
  void extend(std::size_t room, Write&& write);
  [[nodiscard]] bool repeats_last(const location_part& part) const noexcept;
  void repeat_last(const location_part& part);

  answer_form form_;
  std::uint32_t field_;
  const instance_terms& instance_;
  std::string& out_;
  bool is_first_ = true;
  std::size_t reserve_count_ = 0;  ///< locations, until one has shown how long they are
  last_location last_;
  std::vector<std::size_t> ends_;  ///< of its addresses, by spec: bytes from there to its end
};

/// The header of an answer: in JSON with the brace that opens it, and a comma behind.
void append_header(answer_form form, std::uint16_t code, std::string_view message, std::string_view request_id,
                   std::string& out);
/// Closes what append_header() opened.
void append_end(answer_form form, std::string& out);

// Fields of the wire.
void append_varint(std::uint64_t value, std::string& out);
void append_field(std::uint32_t field, std::string_view bytes, std::string& out);
void append_field(std::uint32_t field, std::uint64_t value, std::string& out);

}  // namespace cenote::manager
