// The parts of pages in HTML that need nothing else: those that commands write, and the one that a node serves.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cenote {

struct html_document {
  std::string title;
  std::string body;      ///< HTML
  std::string data{};    ///< JSON in which no `<` stands, for programs; empty: none
  std::string script{};  ///< runs when the page is there; empty: none
};

/// Light or dark as the reader's system is, as wide as its window; asks for nothing.
[[nodiscard]] std::string html_of(const html_document& document);

/// A table; the first row is the heading, and all columns but the first have their cells to the right. Cells are
/// escaped.
[[nodiscard]] std::string html_table(std::span<const std::vector<std::string>> rows);

/// A figure of its own, with what it is.
struct page_card {
  std::string value;
  std::string name;
};
[[nodiscard]] std::string html_of(std::span<const page_card> cards);

/// "12,345" of a whole number of five digits or more; any other text as it is.
[[nodiscard]] std::string with_separators(std::string_view text);

}  // namespace cenote
